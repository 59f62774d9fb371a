#include "plan/captured/captured_step.h"

#include "plan/captured/frame_captures.h"
#include "plan/run_plan.h"
#include "plan/steps/call_step.h"

#include <string>
#include <utility>

namespace sconce {
namespace {

class CapturedStep final : public CallStep {
 public:
  CapturedStep(const Node& node, Operands operands, Registers results, CapturedNode parts)
      : CallStep(node, std::move(operands), std::move(results),
                 /*may_skip_autograd=*/!node.op().all_effects.unknown && !parts.may_return_views),  // its layers mark views
        parts_(std::move(parts)) {}

  void run(Frame& frame) const override {
    const bool needs_autograd = frame.autograd_use != AutogradUse::kNone && reads_gradients(frame);
    push_operands(frame);
    if (needs_autograd || !frame.runs_prepared) {
      run_plan(*parts_.operators, frame.stack, frame.autograd_use);
    } else if (FrameCaptures* const captures = captures_of(frame)) {
      captures->range(parts_).run(*captures, frame.stack);
    } else {
      run_plan(*parts_.operators, frame.stack, AutogradUse::kNone);
    }
    pop_results(frame);
  }

  const CapturedNode& parts() const { return parts_; }

 private:
  std::string why_uncaptured(const Expected<DeviceRuntime*>& runtime) const {
    if (!runtime) {
      return runtime.refusal().reason;
    }
    if ((*runtime)->device_count() <= parts_.device.index()) {
      return (*runtime)->why_unavailable();
    }
    return (*runtime)->captures() ? std::string()
                                  : "the device " + (*runtime)->name(parts_.device.index()) + " captures nothing";
  }

  // Returns null, and counts the reason, if nothing captures on the device.
  FrameCaptures* captures_of(Frame& frame) const {
    if (frame.captures == nullptr) {
      const auto runtime = find_device_runtime(parts_.device.type());
      if (std::string why = why_uncaptured(runtime); !why.empty()) {
        parts_.counts->add_uncaptured(why);
        return nullptr;
      }
      frame.captures = std::make_shared<FrameCaptures>(**runtime, parts_.device);
    }
    return frame.captures.get();
  }

  const CapturedNode parts_;
};

}  // namespace

StepPtr make_captured_step(const Node& node, Operands operands, Registers results, CapturedNode parts) {
  return std::make_unique<CapturedStep>(node, std::move(operands), std::move(results), std::move(parts));
}

const CapturedNode* captured_node_of(const Step& step) {
  const auto* captured = dynamic_cast<const CapturedStep*>(&step);
  return captured == nullptr ? nullptr : &captured->parts();
}

}  // namespace sconce
