// CallStep: a step that works on a stack.
#pragma once

#include "ir/graph.h"
#include "plan/steps/steps.h"

#include <algorithm>
#include <string>

namespace sconce {

// The `run` of a derived class pushes the operands, works on the frame's stack and pops the results.
class CallStep : public Step {
 public:
  CallStep(const Node& node, Operands operands, Registers results, bool may_skip_autograd)
      : Step(may_skip_autograd),
        name_(node.kind().toQualString()),
        operands_(std::move(operands)),
        results_(std::move(results)) {}

  void prepare(Frame& frame) const override { frame.stack.reserve(std::max(operands_.size() + 1, results_.size())); }

  std::string describe() const override { return describe_step(name_, operands_, results_); }

  bool reads_gradients(const Frame& frame) const override {
    return std::any_of(operands_.begin(), operands_.end(),
                       [&](Operand operand) { return may_be_recorded(frame.registers()[operand.index]); });
  }

 protected:
  void push_operands(Frame& frame) const {
    for (const Operand operand : operands_) {
      frame.stack.push_back(take(frame, operand));
    }
  }
  void pop_results(Frame& frame) const {
    for (size_t i = 0; i < results_.size(); ++i) {
      frame[results_[i]] = std::move(frame.stack[i]);
    }
    frame.stack.clear();
  }
  size_t result_count() const { return results_.size(); }

 private:
  std::string name_;
  Operands operands_;
  Registers results_;
};

// Calls the body with the frame, whose stack holds the operands; it leaves the results there.
template <typename Run>
class StackStep final : public CallStep {
 public:
  StackStep(const Node& node, Operands operands, Registers results, Run body)
      : CallStep(node, std::move(operands), std::move(results), /*may_skip_autograd=*/false), body_(std::move(body)) {}

  void run(Frame& frame) const override {
    push_operands(frame);
    body_(frame);
    pop_results(frame);
  }

 private:
  mutable Run body_;  // any thread may call it; the call of LibTorch's that it may hold is not const
};

template <typename Run>
StepPtr make_stack_step(const Node& node, Operands operands, Registers results, Run body) {
  return std::make_unique<StackStep<Run>>(node, std::move(operands), std::move(results), std::move(body));
}

}  // namespace sconce
