#include "plan/autograd/backward_node.h"
#include "plan/autograd/differentiable_function.h"
#include "plan/run_plan.h"
#include "plan/steps/call_step.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

// Runs the forward plan without autograd, and records one autograd node for it.
class DifferentiableStep final : public CallStep {
 public:
  DifferentiableStep(const Node& node, Operands operands, Registers results,
                     std::shared_ptr<const DifferentiableFunction> function)
      : CallStep(node, std::move(operands), std::move(results), /*may_skip_autograd=*/false),
        function_(std::move(function)) {}

  void run(Frame& frame) const override {
    push_operands(frame);
    std::shared_ptr<BackwardNode> node;
    if (c10::GradMode::is_enabled() && any_requires_grad(frame.stack)) {
      // The versions of saved operands are those before the run.
      node = BackwardNode::make(function_, frame.stack);
    }
    {
      // Operands that require a gradient need not be detached: nothing is recorded, and no view of them is returned.
      const at::NoGradGuard no_grad;
      run_plan(*function_->forward, frame.stack, AutogradUse::kNone);
    }
    if (node != nullptr) {
      node->connect(frame.stack);
    }
    frame.stack.resize(function_->outputs);
    pop_results(frame);
  }

  const DifferentiableFunction& function() const { return *function_; }

 private:
  bool any_requires_grad(const torch::jit::Stack& operands) const {
    const std::vector<size_t>& inputs = function_->signature.inputs;
    return std::ranges::any_of(inputs, [&](size_t position) { return operands[position].toTensor().requires_grad(); });
  }

  const std::shared_ptr<const DifferentiableFunction> function_;
};

}  // namespace

const DifferentiableFunction* function_of(const Step& step) {
  const auto* differentiable = dynamic_cast<const DifferentiableStep*>(&step);
  return differentiable != nullptr ? &differentiable->function() : nullptr;
}

StepPtr make_differentiable_step(const Node& node, Operands operands, Registers results,
                                 std::shared_ptr<const DifferentiableFunction> function) {
  return std::make_unique<DifferentiableStep>(node, std::move(operands), std::move(results), std::move(function));
}

}  // namespace sconce
