// Which values may outlive a run (rule R2).
#pragma once

#include "ir/alias_sets.h"
#include "ir/graph.h"

#include <unordered_set>
#include <vector>

namespace sconce {

// The values whose memory must never come from a plan's arena, because somebody may hold it after the run: all that may
// share memory with, or be contained in, an output of the graph, a module attribute or other object, a container from
// outside, a future, an operand or result of an operator about which nothing is known. With `autograd_runs`, operands and
// results of every operator as well: autograd may save any of them for backward.
std::unordered_set<const Value*> find_escaping_values(const Graph& graph, const AliasSets& aliases, bool autograd_runs);

}  // namespace sconce
