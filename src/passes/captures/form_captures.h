// Makes captured nodes of the ranges of nodes that a CUDA graph can hold.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Replaces the longest ranges of nodes that a capture can hold, block by block, by captured nodes. Captures are on the
// graph's main device; on the CPU there are none. A range has nodes of one block, with all that is nested in them: branches
// and loops run on the host while it captures, because the values that decide them depend on sizes and numbers alone.
//
// Between the nodes of a range may be others that neither have effects nor use its results; they run before it.
// Random numbers are drawn in a capture by kernels alone; the captured node has the attribute `draws` then.
// A range that gives work to the device less than twice stays as it is.
bool form_captures(Graph& graph);

}  // namespace sconce
