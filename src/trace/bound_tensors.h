// BoundTensors: tensors that a trace reads besides the arguments of a call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <span>
#include <vector>

namespace sconce {

// The same objects in every run. What can change of such an object is compared: whether it requires a gradient, and what
// `set_data` and writes of sizes change. A comparison takes a few instructions, where a key is built and compared in tens of
// nanoseconds per tensor.
class BoundTensors {
 public:
  BoundTensors() = default;
  explicit BoundTensors(std::vector<at::Tensor> tensors);

  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  // Returns whether all are as they were.
  bool hold() const;
  // Returns whether one of them lies in the storage of one of the others.
  bool share_memory_with(std::span<const at::Tensor> others) const;

 private:
  struct Form {
    const c10::StorageImpl* storage;
    int64_t offset;
    c10::ScalarType dtype;
    bool requires_grad;
    bool is_leaf;
    c10::SmallVector<int64_t, 8> sizes_and_strides;
  };
  static Form form_of(const at::Tensor& tensor);
  static bool has_form(const at::Tensor& tensor, const Form& form);

  std::vector<at::Tensor> tensors_;
  std::vector<Form> forms_;
  std::vector<const c10::StorageImpl*> storages_;  // sorted
};

}  // namespace sconce
