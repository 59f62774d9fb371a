// DifferentiableFunction: the plans of a sconce::differentiable node.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "plan/plan.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sconce {

class Step;
struct StepForm;

// Immutable. The autograd nodes of its runs keep it, also after the module is destroyed.
struct DifferentiableFunction {
  std::string name;  // of its autograd nodes: where in the model it begins
  std::unique_ptr<Plan> forward;
  std::unique_ptr<Plan> backward;
  std::unique_ptr<Plan> recorded_backward;
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
  std::vector<int64_t> capture_paths;

  // Returns whether differentiable output `output` depends on differentiable input `input`.
  bool depends(size_t output, size_t input) const { return dependences[output * differentiable_inputs.size() + input] != 0; }
  // Returns whether backward takes the gradient of differentiable output `output` through captured value `capture`, an input
  // or an output, to differentiable input `input`.
  bool takes(size_t output, size_t capture, size_t input) const {
    const size_t rows = differentiable_outputs.size();
    return capture_paths[(capture * rows + output) * differentiable_inputs.size() + input] != 0;
  }
};

// Lowers the graphs of a sconce::differentiable node.
Expected<std::shared_ptr<const DifferentiableFunction>> make_differentiable_function(const Node& node, StepForm form);

// Returns whether a plan of this name is the backward plan, or that of backward of backward, of a function.
bool is_backward_plan(std::string_view name);

// Returns the function that the step runs, or null if it runs none.
const DifferentiableFunction* function_of(const Step& step);

}  // namespace sconce
