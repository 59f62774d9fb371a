#include "plan/prepared/step_state.h"

#include "base/plain_keys.h"

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

// Returns whether a shell can stand for the tensor.
bool can_be_imported(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device() != device || tensor.layout() != c10::kStrided) {
    return false;
  }
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return are_plain(impl.key_set(), device.type()) && !impl.is_wrapped_number() && !impl.has_symbolic_sizes_strides() &&
         !impl.is_python_dispatch() && impl.has_storage();
}

}  // namespace

bool OperandGuard::matches(const c10::IValue& box) const {
  if (!box.isTensor()) {
    return false;
  }
  const c10::TensorImpl& now = *box.unsafeToTensorImpl();
  const c10::TensorImpl& then = *shell.unsafeGetTensorImpl();
  return now.key_set() == keys && now.dtype() == then.dtype() && now.sizes() == then.sizes() &&
         now.strides() == then.strides() && !now.is_wrapped_number() && (!has_index || now.device() == then.device());
}

bool OperandGuard::matches_flat(const c10::IValue& box, const c10::TensorImpl* first) const {
  if (!box.isTensor()) {
    return false;
  }
  const c10::TensorImpl& now = *box.unsafeToTensorImpl();
  const c10::TensorImpl& then = *shell.unsafeGetTensorImpl();
  if (now.key_set() != keys || now.dtype() != then.dtype() || now.is_wrapped_number() ||
      (has_index && now.device() != then.device())) {
    return false;
  }
  return first == nullptr ? now.is_non_overlapping_and_dense()
                          : now.sizes() == first->sizes() && now.strides() == first->strides();
}

bool OperandGuard::prepare(const c10::IValue& box, c10::Device device) {
  if (!box.isTensor() || !can_be_imported(box.toTensor(), device)) {
    return false;
  }
  const at::Tensor& tensor = box.toTensor();
  reshape_shell(shell, tensor.sizes(), tensor.strides(), tensor.scalar_type(), tensor.device());
  keys = tensor.key_set();
  has_index = tensor.device().has_index();
  return true;
}

bool StepState::make_room(uint64_t hash_of_new) {
  const bool comes_back = replaced.has_seen(hash_of_new);
  if (is_ready && comes_back && others.size() + 1 < kMaxForms) {
    const size_t count = results.size();
    others.push_back(std::make_unique<PreparedForm>(std::move(current())));
    current() = PreparedForm();
    results.resize(count);
  } else if (is_ready) {
    if (comes_back) {
      // The oldest form makes room.
      std::rotate(others.begin(), others.begin() + 1, others.end());
      std::swap(current(), *others.back());
    }
    replaced.note(hash);
  }
  hash = hash_of_new;
  return comes_back;
}

const at::Tensor& KernelResult::place(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype,
                                      c10::Device device) {
  c10::DimVector contiguous;
  if (strides.empty() && !sizes.empty()) {
    contiguous = c10::contiguous_strides(sizes);
    strides = contiguous;
  }
  const bool fits = shell_.defined() && shell_.scalar_type() == dtype && shell_.device() == device &&
                    shell_.sizes() == sizes && shell_.strides() == strides;
  if (!fits) {
    shell_ = make_shell(sizes, strides, dtype, device);
    changed_ = true;
  }
  bytes_ = shell_.storage().nbytes();
  return shell_;
}

}  // namespace sconce
