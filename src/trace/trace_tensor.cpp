#include "trace/trace_tensor.h"

#include "trace/tracer.h"

#include <c10/core/InferenceMode.h>

#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

c10::DispatchKeySet keys_of(const at::Tensor& real) {
  return real.key_set().add(c10::DispatchKey::Fake) |
         c10::getAutogradRelatedKeySetFromBackend(real.key_set().highestBackendKey());
}

}  // namespace

TraceTensor::TraceTensor(at::Tensor real, Value* value, uint64_t tracer, Memory memory,
                         std::shared_ptr<const SymbolicGeometry> geometry)
    : TensorImpl(keys_of(real), real.dtype(), real.device()),
      real_(std::move(real)),
      value_(value),
      tracer_(tracer),
      memory_(memory),
      geometry_(std::move(geometry)) {
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
  const c10::InferenceMode mode(!key_set().has_any(c10::inplace_or_view_ks));
  auto copy = c10::make_intrusive<TraceTensor>(real_, value_, tracer_, Memory::kHidden, geometry_);
  copy->is_copy_ = true;
  if (!copy->is_inference()) {
    copy->set_version_counter(version);
  }
  copy->set_allow_tensor_metadata_change(allow_tensor_metadata_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> TraceTensor::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                         bool allow_tensor_metadata_change) const {
  const c10::VariableVersion taken = std::move(version);
  auto copy = shallow_copy_and_detach(taken, allow_tensor_metadata_change);
  Tracer* tracer = TracingScope::current();
  // `.data()` alone gives the copy a version of its own, and forbids to change its sizes.
  if (!allow_tensor_metadata_change && tracer != nullptr) {
    tracer->note_data(static_cast<TraceTensor&>(*copy));
  }
  return copy;
}

void TraceTensor::shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& other) {
  const auto* source = dynamic_cast<const TraceTensor*>(other.get());
  TORCH_CHECK(source != nullptr, "a traced tensor cannot take the data of a tensor that the trace does not know");
  if (Tracer* tracer = TracingScope::current()) {
    tracer->refuse("it gives a tensor the data of another (set_data)");
  }
  real_ = source->real_;
  value_ = source->value_;
  tracer_ = source->tracer_;
  memory_ = source->memory_;
  geometry_ = source->geometry_;
}

// ---- memory -----------------------------------------------------------------------------------------------------------

// Autograd's engine adds to a gradient in place if it may. It asks whether the tensor is dense, whether it has memory,
// and for its storage, in this order. It reads no element: only what follows tells that from a read.
bool TraceTensor::has_storage() const {
  if (!real_.has_storage()) {
    return false;
  }
  is_read_pending_ = std::exchange(was_asked_if_dense_, false);
  if (!is_read_pending_) {
    refuse_read();
  }
  // LibTorch asks const tensors, and then takes the memory of the members.
  auto& self = const_cast<TraceTensor&>(*this);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  self.storage_ = real_.storage();
  self.storage_offset_ = real_.storage_offset();
  self.numel_ = real_.numel();
  return true;
}

const c10::Storage& TraceTensor::storage() const {
  if (!std::exchange(is_read_pending_, false)) {
    TORCH_CHECK(has_storage(), "the tensor has no storage");
  }
  return storage_;
}

void TraceTensor::refuse_read() const {
  if (memory_ == Memory::kHidden) {
    TracingScope::refuse(tracer_, "it reads the memory of a tensor");
  }
}

// ---- sizes and strides ------------------------------------------------------------------------------------------------

namespace {

thread_local bool ignores_sizes = false;
thread_local bool numel_asks_whether_empty = false;

void pin(const SymbolicGeometry* geometry, const std::vector<c10::SymInt> SymbolicGeometry::* numbers) {
  for (size_t i = 0; geometry != nullptr && !ignores_sizes && i < (geometry->*numbers).size(); ++i) {
    static_cast<void>((geometry->*numbers)[i].guard_int(__FILE__, __LINE__));
  }
}

// Answers for the strides of a tensor without gaps whose inner dims come first in `inner_first`.
bool has_strides_of(const SymbolicGeometry& geometry, const std::vector<size_t>& inner_first) {
  c10::SymInt expected = 1;
  for (const size_t dim : inner_first) {
    if (geometry.sizes[dim] == 1) {
      continue;
    }
    if (geometry.strides[dim] != expected) {
      return false;
    }
    expected = expected * geometry.sizes[dim];
  }
  return true;
}

}  // namespace

IgnoredSizes::IgnoredSizes() : outer_(std::exchange(ignores_sizes, true)) {}
IgnoredSizes::~IgnoredSizes() { ignores_sizes = outer_; }

NumelAsksWhetherEmpty::NumelAsksWhetherEmpty() : outer_(std::exchange(numel_asks_whether_empty, true)) {}
NumelAsksWhetherEmpty::~NumelAsksWhetherEmpty() { numel_asks_whether_empty = outer_; }

at::IntArrayRef TraceTensor::sizes_custom() const {
  pin(geometry_.get(), &SymbolicGeometry::sizes);
  return real_.sizes();
}

at::IntArrayRef TraceTensor::strides_custom() const {
  pin(geometry_.get(), &SymbolicGeometry::strides);
  return real_.strides();
}

int64_t TraceTensor::storage_offset_custom() const { return sym_storage_offset_custom().guard_int(__FILE__, __LINE__); }

c10::SymInt TraceTensor::sym_storage_offset_custom() const {
  return geometry_ != nullptr ? geometry_->offset : real_.sym_storage_offset();
}

int64_t TraceTensor::numel_custom() const {
  if (std::exchange(is_read_pending_, false)) {
    refuse_read();  // the last that LibTorch asks for a pointer to elements of any dtype
  }
  if (numel_asks_whether_empty) {
    return sym_numel_custom() == 0 ? 0 : real_.numel();  // a guard
  }
  return sym_numel_custom().guard_int(__FILE__, __LINE__);
}

c10::SymIntArrayRef TraceTensor::sym_sizes_custom() const {
  return geometry_ != nullptr ? c10::SymIntArrayRef(geometry_->sizes) : real_.sym_sizes();
}

c10::SymIntArrayRef TraceTensor::sym_strides_custom() const {
  return geometry_ != nullptr ? c10::SymIntArrayRef(geometry_->strides) : real_.sym_strides();
}

c10::SymInt TraceTensor::sym_numel_custom() const {
  c10::SymInt numel = 1;
  for (const c10::SymInt& size : sym_sizes_custom()) {
    numel = numel * size;
  }
  return numel;
}

c10::SymBool TraceTensor::sym_is_contiguous_custom(at::MemoryFormat format) const {
  if (geometry_ == nullptr) {
    return real_.is_contiguous(format);
  }
  const size_t rank = geometry_->sizes.size();
  if (sym_numel_custom() == 0) {
    return real_.is_contiguous(format);
  }
  switch (format) {
    case at::MemoryFormat::ChannelsLast: return rank == 4 && has_strides_of(*geometry_, {1, 3, 2, 0});
    case at::MemoryFormat::ChannelsLast3d: return rank == 5 && has_strides_of(*geometry_, {1, 4, 3, 2, 0});
    default: break;
  }
  std::vector<size_t> inner_first;
  for (size_t i = rank; i-- > 0;) {
    inner_first.push_back(i);
  }
  return has_strides_of(*geometry_, inner_first);
}

// As LibTorch computes it: in the order of the strides, each is the product of the sizes before.
c10::SymBool TraceTensor::sym_is_non_overlapping_and_dense_custom() const {
  was_asked_if_dense_ = true;
  if (geometry_ == nullptr) {
    return real_.is_non_overlapping_and_dense();
  }
  std::vector<size_t> inner_first;
  for (size_t i = 0; i < geometry_->sizes.size(); ++i) {
    if (!(geometry_->sizes[i] < 2)) {
      inner_first.push_back(i);
    }
  }
  std::stable_sort(inner_first.begin(), inner_first.end(),
                   [&](size_t a, size_t b) { return real_.strides()[a] < real_.strides()[b]; });
  c10::SymInt expected = 1;
  for (size_t i = 0; i < inner_first.size(); ++i) {
    const c10::SymInt& stride = geometry_->strides[inner_first[i]];
    if ((i > 0 && stride < geometry_->strides[inner_first[i - 1]]) || stride != expected) {
      return false;
    }
    expected = expected * geometry_->sizes[inner_first[i]];
  }
  return true;
}

bool TraceTensor::is_strides_like_custom(at::MemoryFormat format) const {
  pin(geometry_.get(), &SymbolicGeometry::sizes);
  pin(geometry_.get(), &SymbolicGeometry::strides);
  return real_.unsafeGetTensorImpl()->is_strides_like(format);
}

}  // namespace sconce
