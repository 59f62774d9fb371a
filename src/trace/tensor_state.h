// TensorState: what LibTorch keeps of a tensor besides its elements. A call may change all of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sconce {

// Remembers one tensor, which may be one of a trace.
class TensorState {
 public:
  explicit TensorState(const at::Tensor& tensor);

  const at::Tensor& tensor() const { return tensor_; }
  // Returns whether the tensor is a leaf that has come to require a gradient, and nothing else has changed.
  bool is_marked() const;
  // Returns the first change as a verb whose object is the tensor ("detaches"). Null if nothing changed.
  const char* change() const;

 private:
  struct State {
    // ---- memory and form
    const c10::StorageImpl* storage = nullptr;
    int64_t offset = 0;
    c10::SmallVector<int64_t, 8> sizes_and_strides;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    bool has_bits = false;  // is conjugated or negated
    // ---- autograd
    bool requires_grad = false;
    bool is_leaf = false;
    std::shared_ptr<torch::autograd::Node> node;  // its history
    at::Tensor gradient;
    int64_t gradient_version = 0;
    size_t hooks = 0;
    bool retains_gradient = false;
    // ---- names of dimensions
    std::vector<std::string> names;
  };
  static State state_of(const at::Tensor& tensor);

  at::Tensor tensor_;
  State before_;
};

// Compares the states of a call's arguments and of its module's tensors before and after the call.
class TensorStates {
 public:
  // `arguments`: in their order. `attributes`: of the module, and what its containers hold.
  TensorStates(std::span<const at::Tensor> arguments, std::span<const at::Tensor> attributes);

  // Returns the numbers of the arguments that require a gradient now and did not before.
  std::vector<size_t> marked() const;
  // Returns the first other change as a reason ("it detaches an argument"). Empty if there was none.
  std::string refusal() const;

 private:
  std::vector<TensorState> arguments_;
  std::vector<TensorState> attributes_;
};

}  // namespace sconce
