#include "plan/recorded/recorded_step.h"

#include "plan/recorded/frame_recordings.h"
#include "plan/run_plan.h"
#include "plan/steps/call_step.h"

#include <string>
#include <utility>

namespace sconce {
namespace {

class RecordedStep final : public CallStep {
 public:
  RecordedStep(const Node& node, Operands operands, Registers results, RecordedNode parts)
      : CallStep(node, std::move(operands), std::move(results),
                 /*may_skip_autograd=*/!node.op().all_effects.unknown && !parts.may_return_views),  // its layers mark views
        parts_(std::move(parts)) {}

  void run(Frame& frame) const override {
    const bool records = frame.autograd_use != AutogradUse::kNone && reads_gradients(frame);
    push_operands(frame);
    if (records || !frame.runs_prepared) {
      run_plan(*parts_.operators, frame.stack, frame.autograd_use);
    } else if (FrameRecordings* const recordings = recordings_of(frame)) {
      recordings->range(parts_).run(*recordings, frame.stack);
    } else {
      run_plan(*parts_.operators, frame.stack, AutogradUse::kNone);
    }
    pop_results(frame);
  }

  const RecordedNode& parts() const { return parts_; }

 private:
  std::string why_unrecorded(const Expected<DeviceRuntime*>& runtime) const {
    if (!runtime) {
      return runtime.refusal().reason;
    }
    if ((*runtime)->device_count() <= parts_.device.index()) {
      return (*runtime)->why_unavailable();
    }
    return (*runtime)->records() ? std::string()
                                 : "the device " + (*runtime)->name(parts_.device.index()) + " records nothing";
  }

  // Returns null, and counts the reason, if nothing records on the device.
  FrameRecordings* recordings_of(Frame& frame) const {
    if (frame.recordings == nullptr) {
      const auto runtime = find_device_runtime(parts_.device.type());
      if (std::string why = why_unrecorded(runtime); !why.empty()) {
        parts_.counts->add_unrecorded(why);
        return nullptr;
      }
      frame.recordings = std::make_shared<FrameRecordings>(**runtime, parts_.device);
    }
    return frame.recordings.get();
  }

  const RecordedNode parts_;
};

}  // namespace

StepPtr make_recorded_step(const Node& node, Operands operands, Registers results, RecordedNode parts) {
  return std::make_unique<RecordedStep>(node, std::move(operands), std::move(results), std::move(parts));
}

const RecordedNode* recorded_node_of(const Step& step) {
  const auto* recorded = dynamic_cast<const RecordedStep*>(&step);
  return recorded == nullptr ? nullptr : &recorded->parts();
}

}  // namespace sconce
