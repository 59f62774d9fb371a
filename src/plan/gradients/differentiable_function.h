// DifferentiableFunction: the plans of a sconce::differentiable node.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "passes/required/specialize_backward.h"
#include "plan/lower.h"
#include "plan/plan.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace sconce {

class Step;

// Backward of one form of runs.
struct BackwardPlan {
  std::unique_ptr<Plan> plan;
  // See gradient_paths (analysis/): of the captured inputs and outputs. The incoming gradients are those of the outputs and,
  // if autograd records backward, those of the differentiable temporaries.
  std::vector<int64_t> capture_paths;
};

// The plans of backward by the form of their runs. All but the first are made when they are first asked for.
class BackwardPlans {
 public:
  // `all_defined`: of runs in which all gradients of outputs are defined. `general`: see ir/differentiable.h, with
  // `temporaries` differentiable temporaries and `captures` captured inputs and outputs.
  BackwardPlans(BackwardPlan all_defined, std::shared_ptr<const Graph> general, size_t temporaries, size_t captures,
                StepForm form);

  // Any thread may call. What is returned lives as long as this.
  const BackwardPlan& at(const BackwardForm& form) const;
  const Plan& all_defined() const { return *all_defined_.plan; }

 private:
  const BackwardPlan& add(const BackwardForm& form) const;

  BackwardPlan all_defined_;
  std::shared_ptr<const Graph> general_;
  size_t temporaries_;
  size_t captures_;
  StepForm form_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::vector<std::pair<BackwardForm, std::unique_ptr<BackwardPlan>>> others_;
};

// Immutable but for the plans that are made later. The autograd nodes of its runs keep it, also after the module is
// destroyed.
struct DifferentiableFunction {
  std::string name;  // of its autograd nodes: where in the model it begins
  std::unique_ptr<Plan> forward;
  std::unique_ptr<BackwardPlans> backward;
  size_t outputs;                  // of the node; the forward plan returns the temporaries after them
  bool returns_of_blocks = false;  // outputs of branches and loops may be operands, or values that backward saves
  std::vector<bool> is_list;       // per differentiable output
  // Positions, see ir/differentiable.h.
  std::vector<int64_t> differentiable_inputs;
  std::vector<int64_t> differentiable_outputs;
  std::vector<int64_t> captured_inputs;
  std::vector<int64_t> captured_outputs;
  std::vector<int64_t> differentiable_temporaries;
  std::vector<int64_t> conditional_outputs;
  std::vector<int64_t> other_dependences;
  std::vector<int64_t> dependences;

  // Returns whether differentiable output `output` depends on differentiable input `input`.
  bool depends(size_t output, size_t input) const { return dependences[output * differentiable_inputs.size() + input] != 0; }
};

// Lowers the graphs of a sconce::differentiable node.
Expected<std::shared_ptr<const DifferentiableFunction>> make_differentiable_function(const Node& node, StepForm form);

// Returns whether a plan of this name is the backward plan, or that of backward of backward, of a function.
bool is_backward_plan(std::string_view name);

// Returns the function that the step runs, or null if it runs none.
const DifferentiableFunction* function_of(const Step& step);

}  // namespace sconce
