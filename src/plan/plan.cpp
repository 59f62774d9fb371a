#include "plan/plan.h"

#include "ir/text/print.h"
#include "plan/large_blocks.h"

#include <iomanip>
#include <sstream>

namespace sconce {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

std::string describe(Operand operand) { return "%" + std::to_string(operand.index) + (operand.last_use ? "!" : ""); }

std::string describe_step(const std::string& name, const std::vector<Operand>& operands,
                          const std::vector<Register>& results) {
  std::string text = name;
  for (const Operand operand : operands) {
    text += " " + describe(operand);
  }
  text += results.empty() ? "" : " ->";
  for (const Register result : results) {
    text += " %" + std::to_string(result);
  }
  return text;
}

Plan::Plan(std::shared_ptr<const Graph> graph, std::vector<PlannedStep> steps, std::vector<c10::IValue> constants,
           std::vector<Register> inputs, size_t registers, bool checks_each_step, Prepared prepared)
    : graph_(std::move(graph)),
      steps_(std::move(steps)),
      constants_(std::move(constants)),
      inputs_(std::move(inputs)),
      registers_(registers),
      checks_each_step_(checks_each_step),
      memory_(std::move(prepared.lifetimes)),
      prepared_(std::move(prepared)),
      refusals_(prepared_.kernels.size()),
      id_(next_id()) {
  for (const c10::IValue& constant : constants_) {
    constant.visit([this](const c10::IValue& value) {
      if (value.isTensor() && value.toTensor().defined()) {
        constant_tensors_.push_back(value.toTensor());
      }
      return false;
    });
  }
}

// Frames in the pool hold no blocks, and frames of runs keep the plan.
Plan::~Plan() {
  if (memory_.had_large_blocks()) {
    free_kept_blocks();
  }
}

std::unique_ptr<Frame> Plan::take_frame(const void* weight) const {
  constexpr size_t kFramesOfOthers = 8;  // modules that take turns have so many, before they take each other's
  if (auto frame = frames_.take(reinterpret_cast<uintptr_t>(weight))) {
    return frame;
  }
  if (frames_made_.load(std::memory_order_relaxed) >= kFramesOfOthers) {
    if (auto frame = frames_.take_any()) {
      return frame;
    }
  }
  auto frame = std::make_unique<Frame>(*this);
  frame->kept_plan = self_.lock();
  frames_made_.fetch_add(1, std::memory_order_relaxed);
  for (const PlannedStep& planned : steps_) {
    planned.step->prepare(*frame);
  }
  return frame;
}

void Plan::give_back(std::unique_ptr<Frame> frame, const void* weight) const {
  frame->report_overflow();
  frame->clear();
  frames_.give_back(std::move(frame), reinterpret_cast<uintptr_t>(weight));
}

void Plan::drop_frames() const {
  while (frames_.take_any() != nullptr) {
    frames_made_.fetch_sub(1, std::memory_order_relaxed);
  }
}

DroppablePlan::DroppablePlan(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) { plan_->self_ = plan_; }

std::string Plan::text() const {
  std::ostringstream out;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Node* node = steps_[i].node;
    out << std::setw(5) << i << "  " << steps_[i].step->describe();
    if (node != nullptr && node->location()) {
      const std::string place = node->location()->file_line_column();
      out << (place.empty() ? "" : "  # " + place);
    }
    out << "\n";
  }
  return out.str();
}

}  // namespace sconce
