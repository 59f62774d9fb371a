#include "plan/step.h"

#include "base/autocast.h"
#include "base/call_watch.h"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace sconce {

bool may_be_recorded(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && tensor.unsafeGetTensorImpl()->autograd_meta() != nullptr &&
           ((c10::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(/*level=*/0).defined());
  }
  if (value.isList()) {
    return std::ranges::any_of(value.toListRef(), may_be_recorded);
  }
  return value.isTuple() || value.isGenericDict() || value.isObject();
}

// Callbacks for other scopes, such as methods of scripts, see no operator.
bool is_profiled() {
  return at::hasCallbacks() && at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value();
}
bool operators_are_observed() { return is_profiled() || autocast_is_on(); }

bool transform_is_active() {
  constexpr c10::DispatchKeySet kUsual({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView, kWatchKey});
  return !(c10::impl::tls_local_dispatch_key_set().included_ - kUsual).empty();
}

}  // namespace sconce
