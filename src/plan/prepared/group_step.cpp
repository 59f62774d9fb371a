#include "analysis/effects.h"
#include "plan/prepared/kernel_runner.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/COW.h>

#include <algorithm>

namespace sconce {
namespace {

class OneKernelStep final : public GroupStep {
 public:
  OneKernelStep(const NodeGroup& group, const GroupCompiler& compiler)
      : group_(group), compiler_(compiler), draws_(effects_of(*group.nodes.front()).random) {}

  void set_parts(KernelStepParts parts) override { runner_ = KernelRunner(std::move(parts)); }

  void run(Frame& frame) const override {
    // The steps of the single nodes come next.
    if (!frame.runs_prepared || runner_.leaves_to_operators(frame)) {
      return;
    }
    StepState& state = runner_.state_of(frame);
    const auto make_kernel = [this] { return compiler_.make_kernel(group_); };
    const bool is_taken = runner_.take_operands(frame, state, /*op=*/nullptr, make_kernel);
    // After `take_operands`, which may make the arguments anew.
    if (draws_ && is_taken) {
      KernelRunner::tell_draws(frame, state);
    }
    if (is_taken && state.kernel->can_run(state.arguments) && may_write(frame)) {
      // Before the run, which drops operands from their registers at their last use.
      bump_versions(frame);
      runner_.run(frame, state);
      frame.next_step = target_;
    } else {
      // A capture of the run asks for both: operators make numbers a part of it, and it waits for kernels.
      frame.ran_nodes_of_group = true;
      frame.waits_for_kernels = frame.waits_for_kernels || (is_taken && state.kernel->is_being_compiled());
      if (is_taken && state.kernel->why_not() == NotPrepared::kNoCode) {  // found out in the background
        frame.report_refusal_once(runner_.parts().state, NotPrepared::kNoCode);
      }
    }
  }

  bool run_after(Frame& frame, const KernelRunner& before, StepState& state_before) const override {
    const int64_t rows = state_before.kernel->rows();
    // Only the ordinary way, `run`, deals with numbers in memory, random numbers and version counters.
    if (rows == 0 || KernelRunner::reads_numbers_in_memory(frame) || !group_.writes.empty() || draws_ ||
        runner_.leaves_to_operators(frame)) {
      return false;
    }
    // The group's operand is the slot of this result, which has its stamp and address only from here on.
    before.take_memory(frame, state_before);
    StepState& state = runner_.state_of(frame);
    const size_t operand = operand_in(before.parts().results[0].slot);
    if (!runner_.take_operands(frame, state, /*op=*/nullptr, [this] { return compiler_.make_kernel(group_); }) ||
        !state.kernel->takes_rows(operand, rows) || !state.kernel->can_run(state.arguments)) {
      return false;
    }
    runner_.take_memory(frame, state);
    // The group's result of the same form takes the operator's. Each element of it is read before it is written.
    KernelResult& made = state_before.results[0];
    for (const KernelResult& result : state.results) {
      if (have_same_form(result.tensor(), made.tensor())) {
        made.data = result.data;
        KernelRunner::point_operand_at(state, operand, result.data);
        break;
      }
    }
    state.kernel->begin_rows(state.arguments, state.results);
    state_before.kernel->run_by_rows(state_before.arguments, state_before.results, [&](int64_t first, int64_t last) {
      state.kernel->run_rows(state.arguments, state.results, rows, first, last);
    });
    // In the order of the two steps: a result of the group may have a register that the operator drops.
    before.hand_out(frame, state_before);
    runner_.hand_out(frame, state);
    frame.next_step = target_;
    return true;
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
    return "kernel " + names_of(group_) + runner_.describe() + ", then " + std::to_string(target_);
  }

 private:
  // Returns the position of the operand in the slot.
  size_t operand_in(uint32_t slot) const {
    const auto& operands = runner_.parts().operands;
    const auto found = std::find_if(operands.begin(), operands.end(), [&](const PreparedOperand& operand) {
      return operand.source == PreparedOperand::Source::kSlot && operand.slot == slot;
    });
    return found->position;
  }

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
