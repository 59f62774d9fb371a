#include "plan/prepared/reused_results.h"

#include "plan/tensor_slot.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>

#include <utility>

namespace sconce {
namespace {

constexpr size_t kMaxKeptBytes = size_t{16} * 1024;  // bytes
constexpr size_t kMaxBytesReused = 4 * kMaxKeptBytes;
constexpr size_t kMaxKept = 64;

// Reads what the last other holder did before it dropped the storage, if there is no other holder.
bool is_held_once(c10::StorageImpl* storage) {
  auto held = c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage);
  const bool is_unique = held.is_uniquely_owned();
  held.release();
  return is_unique;
}

}  // namespace

// Returns whether nothing else holds the tensor or its memory, and no former holder has left a trace.
bool ReusedResults::is_as_made(const Kept& kept, const at::Tensor& shell) {
  if (!kept.tensor.is_uniquely_owned()) {
    return false;
  }
  c10::TensorImpl& impl = *kept.tensor.unsafeGetTensorImpl();
  if (impl.key_set() != kept.keys || !impl.has_storage() || impl.is_inference() != c10::InferenceMode::is_enabled() ||
      impl.autograd_meta() != nullptr || impl.has_named_tensor_meta() || impl.is_wrapped_number() ||
      impl.pyobj_slot()->load_pyobj() != nullptr ||
      (impl.version_counter().enabled() && impl.version_counter().current_version() != 0)) {
    return false;
  }
  c10::StorageImpl* const storage = impl.unsafe_storage().unsafeGetStorageImpl();
  return is_held_once(storage) && storage->resizable() && storage->pyobj_slot()->load_pyobj() == nullptr &&
         storage->nbytes() == shell.storage().nbytes() && impl.storage_offset() == 0 &&
         storage->data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter() && have_same_form(kept.tensor, shell);
}

at::Tensor ReusedResults::take(const at::Tensor& shell) {
  const size_t at = next_;
  if (at < kept_.size() && is_as_made(kept_[at], shell)) {
    next_ = (at + 1) % kept_.size();
    return kept_[at].tensor;
  }
  at::Tensor made = empty_like_shell(shell);
  const size_t bytes = shell.storage().nbytes();
  if (bytes > kMaxKeptBytes || !shell.is_cpu()) {
    kept_.clear();
    next_ = 0;
    return made;
  }
  Kept kept{made, made.key_set()};
  // A form that changes makes the others useless; so does a holder that keeps what it gets.
  if (at < kept_.size() &&
      (kept_.size() == kMaxKept || (kept_.size() + 1) * bytes > kMaxBytesReused || kept_[at].tensor.is_uniquely_owned())) {
    kept_[at] = std::move(kept);
  } else {
    kept_.insert(kept_.begin() + static_cast<std::ptrdiff_t>(at), std::move(kept));
  }
  next_ = (at + 1) % kept_.size();
  return made;
}

}  // namespace sconce
