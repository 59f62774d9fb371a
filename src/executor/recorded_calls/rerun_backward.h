// RerunBackward: backward of a recorded call by the operators of its forward.
#pragma once

#include "executor/recorded_calls/operator_graph.h"
#include "executor/recorded_calls/recorded_call_cache.h"
#include "plan/autograd/operator_backward.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// A recorded call saves values below autograd. So forward runs again, on tensors with a history of their own, and
// autograd differentiates it. Under `create_graph`, this is treated as a call of a separate method, from tensors and
// gradients of results to gradients of tensors, which is recorded as well. Thread-safe.
class RerunBackward final : public OperatorBackward {
 public:
  // Which operands and results of the call take part, by their numbers.
  struct Form {
    std::string name;             // of the autograd nodes
    size_t symbols = 0;           // operands before the tensors
    SizePattern pattern;          // of the sizes of the first tensors, which are the arguments
    size_t arguments = 0;         // how many those are
    std::vector<size_t> inputs;   // tensors that have gradients
    std::vector<size_t> outputs;  // results that bring gradients
    std::vector<size_t> written;  // tensors that forward writes
    bool draws = false;           // random numbers
  };
  // `forward`: as it was recorded.
  RerunBackward(std::shared_ptr<const Graph> forward, Form form, const Options& options);

  torch::autograd::variable_list run(const OperandsBefore& operands, const torch::autograd::variable_list& gradients,
                                     const std::vector<size_t>& wanted) const override;

  void wait_for_compiles() const;
  void explain(std::vector<Explanation>& plans) const;

 private:
  // Runs forward and its backward. `tensors`: each that has a gradient gets a history of its own, so that gradients are
  // those of this call alone.
  torch::autograd::variable_list rerun(torch::jit::Stack symbols, std::vector<at::Tensor> tensors,
                                       const torch::autograd::variable_list& incoming,
                                       const std::vector<size_t>& wanted) const;
  // The call of a method: the stack has an object, the tensors, the incoming gradients, and a list of those wanted.
  void run_as_method(torch::jit::Stack& stack) const;

  const OperatorGraph forward_;
  const Form form_;
  std::vector<bool> read_;  // per operand: whether an operator reads it
  mutable std::optional<RecordedCallCache>
      calls_;  // none if forward draws random numbers: a rerun needs the generator's state
};

}  // namespace sconce
