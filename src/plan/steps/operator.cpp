#include "analysis/effects.h"
#include "analysis/memory/escapes.h"
#include "base/call_watch.h"
#include "base/plain_keys.h"
#include "ir/refusal.h"
#include "ir/schema_match.h"
#include "plan/steps/call_step.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <string>

namespace sconce {
namespace {

class DispatcherStep : public CallStep {
 public:
  DispatcherStep(const Node& node, Operands operands, Registers results, bool may_skip_autograd, c10::OperatorHandle op)
      : CallStep(node, std::move(operands), std::move(results), may_skip_autograd), op_(std::move(op)) {}

  void run(Frame& frame) const override {
    push_operands(frame);
    call(frame);
    pop_results(frame);
  }

 protected:
  void call(Frame& frame) const { op_.callBoxed(frame.stack); }

 private:
  c10::OperatorHandle op_;
};

// Calls a composite that neither writes nor draws random numbers. Below autograd it may take another way than above
// (`is_composite`), with other checks: what raises below is called again above, for LibTorch's words.
class CompositeStep final : public DispatcherStep {
 public:
  using DispatcherStep::DispatcherStep;

  void run(Frame& frame) const override {
    if (!skips_autograd(frame, *this)) {
      DispatcherStep::run(frame);
      return;
    }
    push_operands(frame);
    constexpr unsigned kUsualOperands = 4;
    const c10::SmallVector<c10::IValue, kUsualOperands> operands(frame.stack.begin(), frame.stack.end());
    try {
      call(frame);
    } catch (const c10::Error&) {
      frame.autograd->skip(false);
      frame.stack.assign(operands.begin(), operands.end());
      call(frame);
    }
    pop_results(frame);
  }
};

// Calls an operator whose kernel makes the workspace of its backward only in grad mode: a plan that a recording made has
// backward in another plan, and runs without.
class WorkspaceStep final : public DispatcherStep {
 public:
  using DispatcherStep::DispatcherStep;

  void run(Frame& frame) const override {
    if (frame.autograd_use != AutogradUse::kNone) {
      DispatcherStep::run(frame);
      return;
    }
    push_operands(frame);
    {
      const c10::AutoGradMode with_workspace(true);
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      call(frame);
    }
    pop_results(frame);
  }
};

// A detach whose result is indistinguishable from its operand if no gradients are recorded. It is then left out.
// The result is another object over the same memory. This is observable if the object escapes or its identity is
// read. (It is also observable if the operand's sizes change in place, which is known for the whole graph.)
bool is_detach_for_gradients_alone(const Node& node) {
  if (node.opcode() != Opcode::kDetach || !is_read_only_and_local(*node.output())) {
    return false;
  }
  return std::ranges::all_of(node.output()->uses(), [](const Use& use) {
    return use.user->op().reads == Reads::kMetadata ||
           (use.user->kind().is_aten() && std::ranges::any_of(use.user->outputs(), [](const Value* result) {
              return result->type()->kind() == c10::TypeKind::TensorType;
            }));
  });
}

// Returns whether the dispatcher has a kernel to call when autograd is skipped: the backend's, or a composite one. Some
// operators have only autograd's.
bool has_kernel_below_autograd(const c10::OperatorHandle& op) {
  // Every loaded backend has a kernel for this operator.
  static const c10::OperatorHandle empty = c10::Dispatcher::singleton().findSchemaOrThrow("aten::empty", "memory_format");
  for (size_t i = 0; i < kPlainKeys.by_backend.size(); ++i) {
    const auto backend =
        c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::Dense, static_cast<c10::BackendComponent>(i));
    if (!kPlainKeys.by_backend[i].empty() && empty.hasComputedKernelForDispatchKey(backend) &&
        !op.hasComputedKernelForDispatchKey(backend)) {
      return false;
    }
  }
  return true;
}

// Returns whether the operator is a function of other operators. Such a function may ask a tensor whether it requires a
// gradient: `matmul` multiplies one large matrix if a view of its right operand does, else several small ones. Below
// autograd a new view of a parameter does not, and the products of several sizes round otherwise.
bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

// Rule R4: only operators whose results are new may run below autograd. Autograd must know the bases of views, and must
// check and count writes.
bool runs_equally_below_autograd(const Node& node, bool is_exact) {
  const c10::FunctionSchema& schema = *node.schema();
  const auto is_marked = [](const c10::Argument& argument) { return argument.alias_info() != nullptr; };
  Effects effects = effects_of(node);
  effects.random = false;
  return !effects.any() && std::ranges::none_of(schema.returns(), is_marked) && !node.op().results_may_share_memory &&
         has_kernel_below_autograd(*node.op().dispatched) && !(is_exact && is_composite(*node.op().dispatched));
}

}  // namespace

Expected<StepPtr> make_operator_step(const Node& node, Operands operands, Registers results, bool sizes_may_change,
                                     bool is_exact) {
  if (node.schema() == nullptr) {
    return refusal_of(node, explain_no_match(node));
  }
  if (StepPtr scalar = make_scalar_step(node, operands, results)) {
    return scalar;
  }
  const Op& op = node.op();
  if (!sizes_may_change && is_detach_for_gradients_alone(node)) {
    return make_stack_step(node, std::move(operands), std::move(results), [detach = *op.dispatched](Frame& frame) {
      if (frame.autograd_use != AutogradUse::kNone) {
        detach.callBoxed(frame.stack);
      }
    });
  }
  if (op.dispatched) {
    const bool may_skip = runs_equally_below_autograd(node, is_exact);
    if (may_skip && is_composite(*op.dispatched) && !effects_of(node).random && !effects_of(node).writes) {
      return StepPtr(
          std::make_unique<CompositeStep>(node, std::move(operands), std::move(results), may_skip, *op.dispatched));
    }
    if (op.needs_grad_mode) {
      return StepPtr(
          std::make_unique<WorkspaceStep>(node, std::move(operands), std::move(results), may_skip, *op.dispatched));
    }
    return StepPtr(
        std::make_unique<DispatcherStep>(node, std::move(operands), std::move(results), may_skip, *op.dispatched));
  }
  if (StepPtr builtin = make_builtin_step(node, operands, results)) {
    return builtin;
  }
  if (op.registered == nullptr || !op.registered->hasOperation()) {
    return refusal_of(node, std::string("the operator ") + node.kind().toQualString() + " cannot be called on its own");
  }
  // Prints, saves and the like, of which no recording knows.
  const Effects effects = effects_of(node);
  const char* what = effects.external || effects.state ? node.kind().toQualString() : nullptr;
  const auto run = [what, operation = op.registered->getOperation(),
                    is_vararg = node.schema()->is_vararg()](Frame& frame) mutable {
    if (what != nullptr && CallWatch::is_on()) {
      CallWatch::note(std::string("calls ") + what);
    }
    if (is_vararg) {
      frame.stack.emplace_back(static_cast<int64_t>(frame.stack.size()));
    }
    operation(frame.stack);
  };
  return make_stack_step(node, std::move(operands), std::move(results), run);
}

}  // namespace sconce
