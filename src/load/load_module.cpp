#include "load/load_module.h"

#include "load/archive.h"
#include "load/plain_reason.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <iterator>

namespace sconce {
namespace {

[[noreturn]] void fail_to_read(const std::string& path, const std::string& message) {
  const std::string reason = plain_reason(message);
  TORCH_CHECK(false, path, ": damaged or not readable by this LibTorch", reason.empty() ? "" : ": ", reason,
              "; copy the file again or write it anew");
}

// LibTorch reports a malformed file by many types of exception, all of them std::exception.
template <typename Read>
auto read_or_explain(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const c10::Error& failure) {
    fail_to_read(path, failure.what_without_backtrace());
  } catch (const std::exception& failure) {
    fail_to_read(path, failure.what());
  }
}

}  // namespace

torch::jit::Module load_script_module(const std::string& path, std::optional<c10::Device> device) {
  check_archive(path);
  return read_or_explain(path, [&] { return torch::jit::load(path, device); });
}

std::vector<c10::IValue> load_arguments(const std::string& path) {
  check_arguments_archive(path);
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const c10::IValue value = read_or_explain(path, [&] { return torch::jit::pickle_load(bytes); });
  if (value.isTuple()) {
    return value.toTupleRef().elements().vec();
  }
  return {value};
}

}  // namespace sconce
