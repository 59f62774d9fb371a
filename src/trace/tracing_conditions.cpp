#include "trace/tracing_conditions.h"

#include "base/storage_of.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>

namespace sconce {
namespace {

// LibTorch exports no type information of the hooks that C++ registers: one object, with a list of functions. `remove_hook`
// leaves an empty function in the place of a hook.
size_t count_functions(const std::unique_ptr<torch::autograd::FunctionPreHook>& hook) {
  constexpr std::string_view kHooksOfCpp = "N5torch8autograd24CppFunctionTensorPreHookE";
  const torch::autograd::FunctionPreHook& known = *hook;
  if (typeid(known).name() != kHooksOfCpp) {
    return 1;
  }
  const auto& functions = *static_cast<const torch::autograd::CppFunctionTensorPreHook&>(known).hooks_;
  return static_cast<size_t>(std::ranges::count_if(functions, [](const auto& function) { return function != nullptr; }));
}

}  // namespace

size_t count_hooks(const std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>& hooks) {
  size_t count = 0;
  for (const auto& hook : hooks) {
    count += count_functions(hook);
  }
  return count;
}

bool has_hooks(const at::Tensor& leaf) {
  namespace impl = torch::autograd::impl;
  if (count_hooks(impl::hooks(leaf)) != 0 || impl::post_acc_grad_hooks(leaf) != nullptr) {
    return true;
  }
  const std::shared_ptr<torch::autograd::Node> accumulator = impl::try_get_grad_accumulator(leaf);
  return accumulator != nullptr && (!accumulator->pre_hooks().empty() || !accumulator->post_hooks().empty());
}

const char* why_not_now(std::span<const at::Tensor> leaves) {
  if (torch::autograd::AnomalyMode::is_enabled()) {
    return "anomaly mode is on";
  }
  if (!at::SavedTensorDefaultHooks::get_tls_state().stack.empty()) {
    return "hooks of saved tensors are on";
  }
  return std::any_of(leaves.begin(), leaves.end(), has_hooks) ? "a parameter has hooks" : nullptr;
}

// Nobody owns the memory of a tensor that at::from_blob made without a deleter: it may be gone after the call.
const char* why_not_kept(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = storage_of(tensor);
  const bool is_owned =
      storage == nullptr || storage->data_ptr().get() == nullptr || storage->data_ptr().get_context() != nullptr;
  return is_owned
             ? nullptr
             : "it reads memory that no tensor owns (at::from_blob without a deleter); give it as an argument, or clone "
               "it once, outside of the call";
}

}  // namespace sconce
