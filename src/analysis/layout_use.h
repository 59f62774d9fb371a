// How operators use the order of an operand's elements in memory.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <cstdint>

namespace sconce {

enum class LayoutUse : uint8_t {
  kSensitive,   // or not known: results, errors or aliasing may depend on it
  kPreserving,  // only the result's strides follow it; the result is new memory or that of the operand
  kAgnostic,    // nothing depends on it but the order of additions
  kFlattens     // flattens each image of a batch: a view in one layout, a copy in another
};

// Returns the use of the tensor, or of the tensors in the list, that is the node's input `index`.
LayoutUse layout_use(const Node& node, size_t index);

// Returns whether the result is computed element by element from tensors and numbers that broadcast, also in place.
bool is_pointwise(const Node& node);

// Returns whether the operator is pointwise, takes one tensor, and returns a new tensor with its sizes and strides.
// (The strides differ if the operand overlaps itself or has gaps.)
bool is_pointwise_of_one(const Node& node);

}  // namespace sconce
