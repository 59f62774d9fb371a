// Merges equal constants and moves them to the top of the graph.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Deduplicates constants and moves them to the top of the graph.
//
//   numbers, strings, None   merged when equal
//   tensors                  merged when they are the same object, or have equal bytes and are only read
//   lists of numbers         merged when equal and only read
//   enums, other types       left in place
//
// Requires: a verified graph. Returns whether the graph changed.
bool pool_constants(Graph& graph);

}  // namespace sconce
