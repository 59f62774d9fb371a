// What operators do with the order in which the elements of an operand lie in memory.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <cstdint>

namespace sconce {

enum class LayoutUse : uint8_t {
  kSensitive,   // or not known: results, errors or aliasing may depend on it
  kPreserving,  // the strides of the result, which is new memory or that of the operand, follow it; nothing else does
  kAgnostic,    // nothing depends on it but the order in which numbers are added up
  kFlattens     // the elements of each image of a batch in a row: a view in one layout, a copy in another
};

// Of the tensor, or of the tensors in the list, that is the node's input `index`.
LayoutUse layout_use(const Node& node, size_t index);

// Whether the result is computed element by element from tensors and numbers that broadcast; in place included.
bool is_pointwise(const Node& node);

// Whether the result has the sizes of the first operand and its strides, but for the case that the operand overlaps itself
// or has gaps: pointwise, a new tensor, of one tensor.
bool is_pointwise_of_one(const Node& node);

}  // namespace sconce
