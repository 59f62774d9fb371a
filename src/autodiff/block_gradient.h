// Gradients of a branch or of a loop's body.
#pragma once

#include "ir/graph.h"

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace sconce {

// A value that a run of the block leaves for backward.
struct SavedValue {
  enum class Kind : uint8_t {
    kOperand,  // a value from outside of the block
    kStack,    // an element of a list from outside, to which every run of the block appends
    kTrip,     // the number of the iteration
  };
  Kind kind;
  Value* value;  // the operand or the list; null for kTrip
};

// A block as a function of its params and of the operands from outside, and the graph of its gradients.
struct BlockGradient {
  // Inputs: the gradients of `outputs`, the gradients of `inner`, whether autograd records backward, `saved`. Outputs: the
  // gradients of `inputs`. Any gradient may be an undefined tensor. Null if no gradient flows through the block.
  std::shared_ptr<Graph> backward;
  std::vector<int64_t> outputs;      // numbers of the block's returns; then, counted on, of `lists`
  std::vector<int64_t> inputs;       // numbers of the block's params; then, counted on, of `operands`
  std::vector<int64_t> dependences;  // a row of 0 and 1 per element of `outputs`: the elements of `inputs`
  std::vector<Value*> operands;
  std::vector<Value*> lists;  // from outside, to which the block appends
  std::vector<Value*> inner;  // stacks whose values have gradients
  std::vector<SavedValue> saved;
};

// Differentiates block `index` of a prim::If or prim::Loop. Makes the block save what its backward reads, in lists that are
// made before the node. `is_reached`: whether a gradient flows to an operand.
BlockGradient differentiate_nested(Node& node, size_t index, c10::function_ref<bool(const Value*)> is_reached);

}  // namespace sconce
