// DifferentiableFunction: the plans of a sconce::differentiable node.
#pragma once

#include "ir/gradient_signature.h"
#include "passes/required/specialize_backward.h"
#include "plan/autograd/operator_backward.h"
#include "plan/plan.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace sconce {

class Step;

// Backward of one form of runs.
struct BackwardPlan {
  // Runs it on the stack, with autograd if the form records; null if there is no plan of the form.
  std::function<void(torch::jit::Stack&)> run;
  // A table per saved input and saved output (gradient_paths in analysis/). The incoming gradients are those of the outputs
  // and, if autograd records backward, those of the differentiable intermediates.
  std::vector<std::vector<bool>> saved_paths;
  std::function<bool()> is_ready = {};  // false while it is compiled, and if that fails. Null: it is ready
};

// The plans of backward by the form of their runs. All but the first are made when they are first asked for.
class BackwardPlans {
 public:
  // Makes the plan of runs of a form. Any thread may call it.
  using Make = std::function<BackwardPlan(const BackwardForm&)>;
  // `all_defined`: of runs in which all gradients of outputs are defined. `make`: of all others.
  BackwardPlans(BackwardPlan all_defined, Make make);

  // Returns null if there is no plan of the form, or none yet: DifferentiableFunction::operators run it. Any thread may
  // call. What is returned lives as long as this.
  const BackwardPlan* at(const BackwardForm& form) const;
  const std::vector<std::vector<bool>>& all_defined_paths() const { return all_defined_.saved_paths; }

 private:
  const BackwardPlan& plan_of(const BackwardForm& form) const;
  // Requires `mutex_`. Returns null if the form was not asked for.
  const BackwardPlan* find(const BackwardForm& form) const;

  BackwardPlan all_defined_;
  Make make_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::vector<std::pair<BackwardForm, std::unique_ptr<BackwardPlan>>> others_;
};

// Forward and backward of a slice, whose gradients are made from rules, or of a recorded call, whose gradients were recorded
// with it. Immutable but for the plans that are made later. The autograd nodes of its runs keep it, also after the module is
// destroyed.
struct DifferentiableFunction {
  std::string name;                         // of its autograd nodes: where in the model it begins
  std::unique_ptr<Plan> forward;            // of a slice
  std::shared_ptr<const Plan> all_defined;  // of a slice: backward of runs in which all gradients are defined
  std::unique_ptr<BackwardPlans> backward;
  size_t outputs = 0;  // of the node; the forward plan returns the intermediates after them
  GradientSignature signature;
  // Saved inputs that the forward plan writes before it reads them: they are saved as they are then.
  std::vector<size_t> written_inputs;
  // Per differentiable output: backward of which others frees what backward of it reads (gradients_that_share in analysis/).
  std::vector<std::vector<bool>> shares;
  bool returns_of_blocks = false;  // outputs of branches and loops may be operands, or values that backward saves
  std::vector<bool> is_list;       // per differentiable output
  // A recorded call. Its outputs may share memory with each other and with what is saved, and have a history even if nothing
  // that they are computed from requires a gradient. Backward takes gradients of the outputs' strides.
  bool is_recorded = false;
  // Backward by operators, where that of a recorded call has no plan. Null: there are plans of all forms.
  std::unique_ptr<OperatorBackward> operators;
  // Numbers that backward of a recorded call has read. Its plans return theirs after the gradients. If they differ, the
  // gradients are those of the operators.
  std::vector<c10::IValue> backward_reads;
  mutable std::atomic<uint64_t> misses{0};  // runs of backward that have read others
  std::string why_no_backward;  // the message that backward raises: one within the call freed what it reads. Empty if none
};

// The names of a function's plans.
std::string name_of_backward(const std::string& function);
std::string name_of_double_backward(const std::string& backward);
// Returns whether a plan of this name is the backward plan, or that of backward of backward, of a function.
bool is_backward_plan(std::string_view name);

// Returns the function that the step runs, or null if it runs none.
const DifferentiableFunction* function_of(const Step& step);

}  // namespace sconce
