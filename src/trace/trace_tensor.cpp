#include "trace/trace_tensor.h"

#include "trace/recorder.h"

#include <c10/core/DispatchKeySet.h>

#include <string_view>
#include <utility>

namespace sconce {
namespace {

c10::DispatchKeySet keys_of(const at::Tensor& real) {
  return real.key_set().add(c10::DispatchKey::Fake) | c10::getAutogradRelatedKeySetFromBackend(real.key_set().highestBackendKey());
}

}  // namespace

TraceTensor::TraceTensor(at::Tensor real, Value* value, uint64_t recorder, Memory memory)
    : TensorImpl(keys_of(real), real.dtype(), real.device()), real_(std::move(real)), value_(value), recorder_(recorder) {
  if (memory == Memory::kShared) {
    storage_ = real_.storage();
    storage_offset_ = real_.storage_offset();
    numel_ = real_.numel();
  } else {
    set_storage_access_should_throw();
  }
  set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
  if (real_.unsafeGetTensorImpl()->is_wrapped_number()) {
    set_wrapped_number(true);
  }
}

TraceTensor* TraceTensor::of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has(c10::DispatchKey::Fake)
             ? dynamic_cast<TraceTensor*>(tensor.unsafeGetTensorImpl())
             : nullptr;
}

c10::intrusive_ptr<c10::TensorImpl> TraceTensor::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                         bool allow_tensor_metadata_change) const {
  auto copy = c10::make_intrusive<TraceTensor>(real_, value_, recorder_);
  copy->is_copy_ = true;
  copy->set_version_counter(version);
  copy->set_allow_tensor_metadata_change(allow_tensor_metadata_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> TraceTensor::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                         bool allow_tensor_metadata_change) const {
  const c10::VariableVersion taken = std::move(version);
  return shallow_copy_and_detach(taken, allow_tensor_metadata_change);
}

void TraceTensor::shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& other) {
  const auto* source = dynamic_cast<const TraceTensor*>(other.get());
  TORCH_CHECK(source != nullptr, "a traced tensor cannot take the data of a tensor that the trace does not know");
  if (Recorder* recorder = RecordingScope::current()) {
    recorder->refuse("it gives a tensor the data of another (set_data)");
  }
  real_ = source->real_;
  value_ = source->value_;
  recorder_ = source->recorder_;
}

c10::SymBool TraceTensor::sym_is_contiguous_custom(at::MemoryFormat format) const { return real_.is_contiguous(format); }

c10::SymBool TraceTensor::sym_is_non_overlapping_and_dense_custom() const { return real_.is_non_overlapping_and_dense(); }

bool TraceTensor::is_strides_like_custom(at::MemoryFormat format) const {
  return real_.unsafeGetTensorImpl()->is_strides_like(format);
}

bool is_of_hidden_memory(const c10::Error& error) {
  return std::string_view(error.what_without_backtrace()).find("Tensor that doesn't have storage") != std::string_view::npos;
}

}  // namespace sconce
