#pragma once

#include "ir/graph.h"
#include "ir/refusal.h"
#include "load/function_table.h"

namespace sconce {

// Replaces every call of a script function or method by the callee's nodes, until no call is left. The source locations
// of what was inlined keep the chain of call sites (source.h).
//
// Requires: a verified graph. Refuses recursion and methods of interfaces, whose callee only a run can tell; the graph is
// then left in the middle of the work and must be thrown away.
// Returns whether the graph changed.
OrRefusal<bool> inline_calls(Graph& graph, FunctionTable& functions);

}  // namespace sconce
