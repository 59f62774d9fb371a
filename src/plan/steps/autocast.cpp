#include "plan/steps/call_step.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

#include <utility>

namespace sconce {
namespace {

// Switches autocast on, in a run that has switched it off.
class AutocastOn {
 public:
  AutocastOn() : was_on_(at::autocast::is_autocast_enabled(at::kCPU)) { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~AutocastOn() { at::autocast::set_autocast_enabled(at::kCPU, was_on_); }
  AutocastOn(const AutocastOn&) = delete;
  AutocastOn& operator=(const AutocastOn&) = delete;

 private:
  const bool was_on_;
};

// Runs with autograd's layers: casts of leaves that the step keeps serve other operators, too.
class AutocastStep final : public Step {
 public:
  explicit AutocastStep(StepPtr step) : Step(/*may_skip_autograd=*/false), step_(std::move(step)) {}

  void prepare(Frame& frame) const override { step_->prepare(frame); }

  void run(Frame& frame) const override {
    const AutocastOn autocast;
    step_->run(frame);
  }

  std::string describe() const override { return step_->describe() + " [with autocast]"; }

 private:
  StepPtr step_;
};

}  // namespace

StepPtr make_autocast_step(StepPtr step) { return std::make_unique<AutocastStep>(std::move(step)); }

StepPtr make_autocast_cast_step(const Node& node, Operands operands, Registers results) {
  return make_stack_step(node, std::move(operands), std::move(results), [](Frame& frame) {
    const auto dtype = static_cast<c10::ScalarType>(frame.stack[1].toInt());
    frame.stack = {at::autocast::cached_cast(dtype, frame.stack[0].toTensor(), at::kCPU)};
  });
}

}  // namespace sconce
