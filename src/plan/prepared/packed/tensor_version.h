// TensorVersion: tells whether a tensor still has the elements that it had.
#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

namespace sconce {

// The elements of a dense tensor of float32 at some time. LibTorch counts the writes to a tensor, but not those through
// `data()` or a raw pointer. Some elements are compared beside the count: most of such writes change all of them.
class TensorVersion {
 public:
  // Returns nothing for a tensor without elements, or whose writes are not counted: an inference tensor.
  static std::optional<TensorVersion> of(const c10::TensorImpl& tensor);

  // Returns whether the tensor has the same elements in the same memory.
  bool is_still(const c10::TensorImpl& tensor) const {
    const c10::VariableVersion& version = tensor.version_counter();
    return tensor.data() == data_ && version.enabled() && version.current_version() == version_ &&
           tensor.storage().unsafeGetStorageImpl() == storage_._unsafe_get_target() && samples_of(tensor) == samples_;
  }

  // While this object lives, no tensor in other memory has this address.
  const void* data() const { return data_; }

 private:
  using Samples = std::array<uint32_t, 16>;
  static Samples samples_of(const c10::TensorImpl& tensor);
  explicit TensorVersion(const c10::TensorImpl& tensor);

  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;  // may be freed; then its address is not used again
  const void* data_;
  uint32_t version_;
  Samples samples_;
};

// Returns a checksum of all elements.
uint64_t checksum_of(const c10::TensorImpl& tensor);

// The elements of a weight and its bias, which is null for an operator without one.
class WeightVersions {
 public:
  // Returns nothing if the elements of one of them cannot be told: see TensorVersion::of.
  static std::optional<WeightVersions> of(const c10::TensorImpl& weight, const c10::TensorImpl* bias);

  bool are_still(const c10::TensorImpl& weight, const c10::TensorImpl* bias) const {
    return weight_.is_still(weight) && (bias != nullptr) == bias_.has_value() && (bias == nullptr || bias_->is_still(*bias));
  }
  const void* weight_data() const { return weight_.data(); }
  const void* bias_data() const { return bias_ ? bias_->data() : nullptr; }

 private:
  WeightVersions(TensorVersion weight, std::optional<TensorVersion> bias)
      : weight_(std::move(weight)), bias_(std::move(bias)) {}

  TensorVersion weight_;
  std::optional<TensorVersion> bias_;
};

}  // namespace sconce
