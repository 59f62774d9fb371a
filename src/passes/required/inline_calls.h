#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "load/function_table.h"

#include <functional>

namespace sconce {

// Replaces every call of a script function or method by the callee's nodes, until no call is left. The source locations
// of what was inlined keep the chain of call sites (source.h).
//
// `simplify`, where given, is called once with the body of each function that several calls name, its own calls inlined,
// before the body is copied to them: a model of twelve equal layers is simplified once and not twelve times. Not in programs
// that ask which of two tuples an object is: what happens to one function could be seen by another.
//
// Requires: a verified graph. Methods of interfaces, whose callee only a run can tell, and recursion stay calls. Refuses a
// function that has no graph of ours; the graph is then left in the middle of the work and must be thrown away.
// Returns whether the graph changed.
Expected<bool> inline_calls(Graph& graph, FunctionTable& functions, const std::function<void(Graph&)>& simplify = nullptr);

}  // namespace sconce
