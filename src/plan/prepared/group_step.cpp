#include "analysis/effects.h"
#include "plan/prepared/kernel_runner.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/COW.h>

namespace sconce {
namespace {

class OneKernelStep final : public GroupStep {
 public:
  OneKernelStep(const NodeGroup& group, const GroupCompiler& compiler)
      : group_(group), compiler_(compiler), draws_(effects_of(*group.nodes.front()).random) {}

  void set_parts(KernelStepParts parts) override { runner_ = KernelRunner(std::move(parts)); }

  void run(Frame& frame) const override {
    if (!frame.runs_prepared || runner_.leaves_to_operators(frame)) {
      return;
    }
    StepState& state = runner_.state_of(frame);
    const auto make_kernel = [this] { return compiler_.make_kernel(group_); };
    const bool is_taken = runner_.take_operands(frame, state, /*op=*/nullptr, make_kernel);
    if (draws_ && is_taken) {
      KernelRunner::tell_draws(frame, state);
    }
    if (is_taken && state.kernel->can_run(state.arguments) && may_write(frame)) {
      bump_versions(frame);
      runner_.run(frame, state);
      frame.next_step = target_;
    } else {
      frame.ran_nodes_of_group = true;
      frame.waits_for_kernels = frame.waits_for_kernels || (is_taken && state.kernel->is_being_compiled());
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
  // Calls `visit` for each tensor that the group writes and that others may hold, and with how many nodes write it.
  template <typename Visit>
  void for_each_written(Frame& frame, const Visit& visit) const {
    for (const NodeGroup::Write& write : group_.writes) {
      const PreparedOperand& operand = runner_.parts().operands[write.operand];
      if (operand.source == PreparedOperand::Source::kBox) {
        visit(*runner_.boxed(frame, operand).unsafeToTensorImpl(), write.count);
      }
    }
  }

  // Returns whether the kernel may write the memory. Otherwise the operators raise, or copy memory that they share first.
  bool may_write(Frame& frame) const {
    bool may = true;
    for_each_written(frame, [&](c10::TensorImpl& impl, uint32_t /*count*/) {
      may = may && (!impl.is_inference() || c10::InferenceMode::is_enabled()) &&
            !c10::impl::cow::is_cow_data_ptr(impl.unsafe_storage().data_ptr());
    });
    return may;
  }

  // Rule R3. Inference tensors have no version.
  void bump_versions(Frame& frame) const {
    for_each_written(frame, [](c10::TensorImpl& impl, uint32_t count) {
      for (uint32_t i = 0; i < count && !impl.is_inference(); ++i) {
        impl.bump_version();
      }
    });
  }

  const NodeGroup group_;
  const GroupCompiler& compiler_;
  const bool draws_;  // random numbers
  KernelRunner runner_{{}};
};

}  // namespace

std::unique_ptr<GroupStep> make_group_step(const NodeGroup& group, const GroupCompiler& compiler) {
  return std::make_unique<OneKernelStep>(group, compiler);
}

}  // namespace sconce
