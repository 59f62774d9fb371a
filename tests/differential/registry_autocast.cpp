#include "tests/differential/registry_autocast.h"

#include "tools/sconce/values/deep_copy.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

namespace sconce::testing {
namespace {

thread_local std::set<std::string>* cast_operators = nullptr;

std::unique_ptr<at::ObserverContext> note_operator(const at::RecordFunction& call) {
  const auto& name = call.operator_name();
  if (cast_operators != nullptr && name) {
    const auto op = c10::Dispatcher::singleton().findSchema(*name);
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) {
      cast_operators->insert(c10::toString(*name));
    }
  }
  return nullptr;
}

}  // namespace

AutocastToBFloat16::AutocastToBFloat16() {
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
}

AutocastToBFloat16::~AutocastToBFloat16() {
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
}

std::set<std::string> operators_cast_in(const std::function<void()>& call) {
  std::set<std::string> found;
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(&note_operator).scopes({at::RecordScope::FUNCTION}));
  cast_operators = &found;
  try {
    const AutocastToBFloat16 autocast;
    call();
  } catch (const std::exception&) {
    // What it called before counts.
  }
  cast_operators = nullptr;
  at::removeCallback(handle);
  return found;
}

std::vector<c10::IValue> with_floating_dtype(const std::vector<c10::IValue>& values, c10::ScalarType dtype) {
  const std::function<c10::IValue(const c10::IValue&)> converted = [&](const c10::IValue& value) -> c10::IValue {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_floating_point()) {
      return value.toTensor().to(dtype);
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& element : value.toTensorVector()) {
        list.push_back(converted(element).toTensor());
      }
      return list;
    }
    return cli::deep_copy(value);
  };
  std::vector<c10::IValue> all;
  for (const c10::IValue& value : values) {
    all.push_back(converted(value));
  }
  return all;
}

}  // namespace sconce::testing
