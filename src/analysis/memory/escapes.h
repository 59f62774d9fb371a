// Values that may outlive a run (rule R2).
#pragma once

#include "analysis/memory/alias_sets.h"
#include "ir/graph.h"

#include <unordered_set>

namespace sconce {

// Returns the values whose memory must not come from a plan's arena, because it may be held after the run. A value escapes
// if it may share memory with, or be contained in,
//   - an output of the graph;
//   - a module attribute or other object, or a container from outside;
//   - a future;
//   - an operand or result of an unknown operator;
//   - with `autograd_runs`, an operand or result of any operator: autograd may save it for backward.
std::unordered_set<const Value*> find_escaping_values(const Graph& graph, const AliasSets& aliases, bool autograd_runs);

// Returns whether the object, or another object made from it over its memory,
//   - may be held after the run, or be stored in a container or returned from a block during it; or
//   - has its identity observed.
// In contrast to find_escaping_values this is about the object: a value does not escape because it shares memory with an
// input.
bool may_escape(const Value& value);
// Returns a node through which the value may escape; null if it may not.
const Node* escaping_use(const Value& value);

// Returns whether the graph only reads the value: neither it nor another object made from it over its memory is written or
// escapes. Looks at uses only; other aliases of its memory do not count.
bool is_read_only_and_local(const Value& value);

// Returns whether the node's results are objects that existed before, so that a second read returns the same ones.
bool produces_existing_objects(const Node& node);

}  // namespace sconce
