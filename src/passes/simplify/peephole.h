// Small rewrites that need to see a node and its operands only.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Elements and lengths of lists the graph builds, casts and tests that the types decide, properties of tensors that their
// facts know, calls that give back their argument. Each rule stands beside the operator it rewrites in peephole.cpp.
bool peephole(Graph& graph);

}  // namespace sconce
