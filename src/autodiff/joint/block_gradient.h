// Gradients of a branch or of a loop's body.
#pragma once

#include "ir/gradient_signature.h"
#include "ir/graph.h"
#include "passes/run_pass.h"

#include <c10/util/FunctionRef.h>

#include <memory>
#include <vector>

namespace sconce {

// A value that a run of the block leaves for backward.
struct SavedValue {
  enum class Kind : uint8_t {
    kOperand,    // a value from outside of the block
    kElement,    // an element of a list from outside, to which every run of the block appends
    kIteration,  // the number of the iteration
  };
  Kind kind;
  Value* value;  // the operand or the list; null for kIteration
};

// A block as a function of its params and of the operands from outside, and the graph of its gradients.
struct BlockGradient {
  // Inputs: the gradients of the differentiable outputs, the gradients of `intermediates`, whether autograd records
  // backward, `saved`. Outputs: the gradients of the differentiable inputs. Any gradient may be an undefined tensor. Null if
  // no gradient flows through the block.
  std::shared_ptr<Graph> backward;
  // Inputs: the block's params, then `operands`. Outputs: the block's returns, then `lists`.
  GradientSignature signature;
  std::vector<Value*> operands;
  std::vector<Value*> lists;          // from outside, to which the block appends
  std::vector<Value*> intermediates;  // lists of saved values that have a gradient in double backward
  std::vector<SavedValue> saved;
};

// Differentiates block `index` of a prim::If or prim::Loop. Makes the block save what its backward reads, in lists that are
// made before the node. `is_reached`: whether a gradient flows to an operand.
// `run`: as for differentiate_block.
BlockGradient differentiate_nested(Node& node, size_t index, c10::function_ref<bool(const Value*)> is_reached,
                                   const RunPass& run);

}  // namespace sconce
