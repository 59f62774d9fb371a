#include "plan/prepared/prepared_step.h"

namespace sconce {
namespace {

class ReleaseStep final : public Step {
 public:
  explicit ReleaseStep(std::vector<uint32_t> slots) : Step(true), slots_(std::move(slots)) {}

  void run(Frame& frame) const override {
    if (frame.has_blocks()) {
      frame.release(slots_);
    }
  }
  std::string describe() const override {
    std::string text = "release";
    for (const uint32_t slot : slots_) {
      text += " $" + std::to_string(slot);
    }
    return text;
  }

 private:
  std::vector<uint32_t> slots_;
};

class UnpreparedStep final : public Step {
 public:
  explicit UnpreparedStep(StepPtr step) : Step(step->may_skip_autograd()), step_(std::move(step)) {}

  void prepare(Frame& frame) const override { step_->prepare(frame); }
  void run(Frame& frame) const override {
    if (!frame.runs_prepared) {
      step_->run(frame);
    }
  }
  bool reads_gradients(const Frame& frame) const override { return step_->reads_gradients(frame); }
  std::string describe() const override { return "unprepared " + step_->describe(); }

 private:
  StepPtr step_;
};

}  // namespace

StepPtr make_release_step(std::vector<uint32_t> slots) { return std::make_unique<ReleaseStep>(std::move(slots)); }

StepPtr make_unprepared_step(StepPtr step) { return std::make_unique<UnpreparedStep>(std::move(step)); }

}  // namespace sconce
