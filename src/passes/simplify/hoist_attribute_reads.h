// Moves reads of attributes from between a product and what follows it.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Moves each prim::GetAttr up in its block: to right after its object, or to the beginning of the block if the object is
// made outside. So no read stands between a product and what follows it.
//
// Legal because the graph assigns none of these attributes and runs no unknown code.
// Keeps: the order of reads of one object, and the blocks that reads are in. Returns whether the graph changed.
bool hoist_attribute_reads(Graph& graph);

}  // namespace sconce
