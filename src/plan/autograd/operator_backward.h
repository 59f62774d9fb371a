// OperatorBackward: backward of a function by LibTorch's operators, which autograd may record.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sconce {

// The operands of a run as they were before it, from which forward may run again.
class OperandsBefore {
 public:
  // Requires that the run has not begun. `written`: numbers of the tensors that it writes. `draws`: it draws random numbers.
  OperandsBefore(std::vector<c10::IValue> operands, std::vector<size_t> written, bool draws);

  const std::vector<c10::IValue>& operands() const { return operands_; }
  // Notes the versions of the operands, when the run has ended.
  void note_versions();
  // Returns the operands. Throws c10::Error if one has been written since, of those that the run reads. `read`: per operand.
  // `name`: of the autograd node.
  std::vector<c10::IValue> checked(const std::vector<bool>& read, const std::string& name) const;
  // Returns the state of the generator of random numbers; undefined if the run draws none.
  const at::Tensor& random_state() const { return random_state_; }

 private:
  std::vector<c10::IValue> operands_;
  std::vector<int64_t> versions_;  // of tensors
  std::vector<size_t> written_;
  std::vector<at::Tensor> contents_;  // of what is written
  at::Tensor random_state_;
};

class OperatorBackward {
 public:
  OperatorBackward() = default;
  OperatorBackward(const OperatorBackward&) = delete;
  OperatorBackward& operator=(const OperatorBackward&) = delete;
  virtual ~OperatorBackward() = default;

  // Returns the gradients of the function's differentiable inputs, of which `wanted` are computed: with their history in
  // grad mode. `gradients`: of its differentiable outputs, of which some may be undefined. Any thread may call.
  virtual torch::autograd::variable_list run(const OperandsBefore& operands, const torch::autograd::variable_list& gradients,
                                             const std::vector<size_t>& wanted) const = 0;
};

// Returns the message of a version that is not the saved one.
std::string message_of_version(const at::Tensor& tensor, const std::string& name, int64_t saved);

}  // namespace sconce
