// TensorVersion and AccumulatorStamp: tell whether a tensor still has the elements that it had.
#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace sconce {

// The elements of a dense tensor of float32 at some time. LibTorch counts the writes to a tensor, but not those through
// `data()` or a raw pointer. Some elements are compared beside the count: most of such writes change all of them.
class TensorVersion {
 public:
  // Returns nothing for a tensor without elements, or whose writes are not counted: an inference tensor.
  static std::optional<TensorVersion> of(const c10::TensorImpl& tensor);

  // Returns whether the tensor has the same memory, no write to it was counted, and some elements are the same.
  bool is_still(const c10::TensorImpl& tensor) const { return is_counted_still(tensor) && samples_of(tensor) == samples_; }
  // The same but for the elements, which are not read.
  bool is_counted_still(const c10::TensorImpl& tensor) const {
    const c10::VariableVersion& version = tensor.version_counter();
    return tensor.data() == data_ && version.enabled() && version.current_version() == version_ &&
           tensor.storage().unsafeGetStorageImpl() == storage_._unsafe_get_target();
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

// Whether a tensor was trained since some time. LibTorch's optimizers write a parameter through `data()`, which is not
// counted, and leave elements as they are whose gradients are zero. Before they do, a call records the parameter and gives
// it a gradient accumulator, and backward a gradient. LibTorch keeps the last accumulator as a weak pointer, which tells
// two accumulators apart even when both are gone.
class AccumulatorStamp {
 public:
  explicit AccumulatorStamp(const c10::TensorImpl& tensor)
      : accumulator_(accumulator_of(tensor)), is_settled_(accumulator_.expired() && !tensor.grad().defined()) {}

  // Returns whether the tensor had no gradient, nothing could compute one, and no call recorded the tensor since.
  bool is_still(const c10::TensorImpl& tensor) const {
    const std::weak_ptr<torch::autograd::Node>& now = accumulator_of(tensor);
    return is_settled_ && !now.owner_before(accumulator_) && !accumulator_.owner_before(now) && !tensor.grad().defined();
  }

 private:
  // LibTorch writes the pointer under a lock, while a call records the tensor. A run beside that call may see the one
  // before.
  static const std::weak_ptr<torch::autograd::Node>& accumulator_of(const c10::TensorImpl& tensor) {
    static const std::weak_ptr<torch::autograd::Node> kNone;
    const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(tensor.autograd_meta());
    return meta == nullptr ? kNone : meta->grad_accumulator_;
  }

  std::weak_ptr<torch::autograd::Node> accumulator_;
  bool is_settled_;
};

// A weight and its bias, which is null for an operator without one. Both are as TensorVersion asks.
struct WeightTensors {
  const c10::TensorImpl* weight = nullptr;
  const c10::TensorImpl* bias = nullptr;
};

class WeightVersions {
 public:
  // Returns nothing if the elements of one of them cannot be told: see TensorVersion::of.
  static std::optional<WeightVersions> of(WeightTensors tensors);

  bool are_still(WeightTensors tensors) const {
    return weight_.is_still(*tensors.weight) && (tensors.bias != nullptr) == bias_.has_value() &&
           (tensors.bias == nullptr || bias_->is_still(*tensors.bias));
  }
  // The same but for the elements, which are not read.
  bool are_counted_still(WeightTensors tensors) const {
    return weight_.is_counted_still(*tensors.weight) && (tensors.bias != nullptr) == bias_.has_value() &&
           (tensors.bias == nullptr || bias_->is_counted_still(*tensors.bias));
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
