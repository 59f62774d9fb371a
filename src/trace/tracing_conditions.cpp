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

// `remove_hook` leaves an empty function in the place of a hook. LibTorch exports no type information of these hooks.
bool is_removed(const std::unique_ptr<torch::autograd::FunctionPreHook>& hook) {
  constexpr std::string_view kHooksOfCpp = "N5torch8autograd24CppFunctionTensorPreHookE";
  const torch::autograd::FunctionPreHook& known = *hook;
  if (typeid(known).name() != kHooksOfCpp) {
    return false;
  }
  const auto& functions = *static_cast<const torch::autograd::CppFunctionTensorPreHook&>(known).hooks_;
  return std::none_of(functions.begin(), functions.end(), [](const auto& function) { return function != nullptr; });
}

}  // namespace

bool are_called(const std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>& hooks) {
  return !std::all_of(hooks.begin(), hooks.end(), is_removed);
}

bool has_hooks(const at::Tensor& leaf) {
  namespace impl = torch::autograd::impl;
  if (are_called(impl::hooks(leaf)) || impl::post_acc_grad_hooks(leaf) != nullptr) {
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
