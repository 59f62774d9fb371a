#include "plan/prepared/kernel_runner.h"

#include <algorithm>

namespace sconce {
namespace {

class OneKernelStep final : public GroupStep {
 public:
  OneKernelStep(const NodeGroup& group, const GroupCompiler& compiler) : group_(group), compiler_(compiler) {}

  void set_parts(KernelStepParts parts) override { runner_ = KernelRunner(std::move(parts)); }

  void run(Frame& frame) const override {
    if (!frame.runs_prepared || runner_.leaves_to_operators(frame)) {
      return;
    }
    StepState& state = runner_.state_of(frame);
    const auto make_kernel = [this] { return compiler_.make_kernel(group_); };
    if (runner_.take_operands(frame, state, /*op=*/nullptr, make_kernel) && state.kernel->can_run(state.arguments)) {
      runner_.run(frame, state);
      frame.next_step = target_;
    }
  }

  std::string name() const override {
    constexpr size_t kShown = 3;
    std::string name = "kernel";
    size_t count = 0;
    for (const Node* node : group_.nodes) {
      if (node->opcode() != Opcode::kListUnpack && ++count <= kShown) {
        name += std::string(" ") + node->kind().toUnqualString();
      }
    }
    return name + (count > kShown ? " +" + std::to_string(count - kShown) : "");
  }

  bool ran_prepared(const Frame& frame) const override { return frame.runs_prepared && frame.next_step == target_; }

  // "kernel add mul mul $1 %2 -> $3, then 12"
  std::string describe() const override {
    std::string text = "kernel";
    for (const Node* node : group_.nodes) {
      text += node->opcode() == Opcode::kListUnpack ? "" : std::string(" ") + node->kind().toUnqualString();
    }
    return text + runner_.describe() + ", then " + std::to_string(target_);
  }

 private:
  const NodeGroup group_;
  const GroupCompiler& compiler_;
  KernelRunner runner_{{}};
};

}  // namespace

std::unique_ptr<GroupStep> make_group_step(const NodeGroup& group, const GroupCompiler& compiler) {
  return std::make_unique<OneKernelStep>(group, compiler);
}

}  // namespace sconce
