#include "tools/sconce/commands/ops_library.h"

#include "base/shared_library.h"
#include "plan/device/libtorch_cuda.h"
#include "tools/sconce/report/errors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/custom_class_detail.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace sconce::cli {
namespace {

// Returns whether the library was built as a Python extension, like torchvision's _C.so. Judges by the libraries that
// it names, because the dynamic linker reports only the first missing one.
bool needs_python(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const char* sign : {"libtorch_python.so", "libpython3", "PyInit_"}) {
    if (content.find(sign) != std::string::npos) {
      return true;
    }
  }
  return false;
}

// Returns how many operators, and methods of classes, the process knows.
size_t count_registered() {
  return c10::Dispatcher::singleton().getAllOpNames().size() + torch::jit::getAllOperators().size() +
         torch::customClassSchemasForBCCheck().size();
}

Expected<SharedLibrary> open_globally(const std::string& file) {
  auto library = open_library(file, /*global=*/true);
  // Libraries built with LibTorch's CMake package need libtorch.so, which only refers to LibTorch's parts.
  if (!library && library.refusal().reason.starts_with("libtorch.so:") &&
      open_library(libtorch_directory() + "/libtorch.so", /*global=*/true)) {
    return open_library(file, /*global=*/true);
  }
  return library;
}

}  // namespace

void open_ops_library(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw UserError(path + ": no such file (--ops-library)");
  }
  // A path with a slash, so that the library search path is not used.
  const std::string file = std::filesystem::absolute(path).string();
  const bool is_new = !loaded_library(file);
  const size_t registered = count_registered();
  const auto library = open_globally(file);
  if (library) {
    if (is_new && count_registered() == registered) {
      throw UserError(path +
                      ": registers no operator and no class (--ops-library); TORCH_LIBRARY registers them, in a library " +
                      "that is linked with the same LibTorch");
    }
    return;
  }
  if (needs_python(file)) {
    throw UserError(
        path + ": this library is a Python extension: it needs Python's libraries, which are not in this process (" +
        library.refusal().reason + "); build the operators with TORCH_LIBRARY alone, linked with torch_cpu and c10 only");
  }
  throw UserError(path + ": cannot be opened: " + library.refusal().reason);
}

}  // namespace sconce::cli
