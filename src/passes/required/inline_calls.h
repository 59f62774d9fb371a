#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "load/function_table.h"

#include <functional>

namespace sconce {

// Replaces every call of a script function or method by the callee's nodes, until no such call is left. The locations of
// inlined nodes keep the chain of call sites (source.h).
//
// `simplify`, if given, runs once on the body of each function that has several calls, after the calls in that body are
// inlined and before it is copied. A model of twelve equal layers is then simplified once and not twelve times. It does not
// run in programs that compare tuples or strings by identity, where it could merge objects of two functions.
//
// Requires: a verified graph.
// Does not: inline methods of interfaces, whose callee is known only at run time, or recursive calls.
// Refuses a function that has no sconce graph. The graph is then half inlined and must be discarded.
// Returns whether the graph changed.
Expected<bool> inline_calls(Graph& graph, FunctionTable& functions, const std::function<void(Graph&)>& simplify = nullptr);

}  // namespace sconce
