// Which values may outlive a run (rule R2).
#pragma once

#include "analysis/alias_sets.h"
#include "ir/graph.h"

#include <unordered_set>
#include <vector>

namespace sconce {

// The values whose memory must never come from a plan's arena, because somebody may hold it after the run: all that may
// share memory with, or be contained in, an output of the graph, a module attribute or other object, a container from
// outside, a future, an operand or result of an operator about which nothing is known. With `autograd_runs`, operands and
// results of every operator as well: autograd may save any of them for backward.
std::unordered_set<const Value*> find_escaping_values(const Graph& graph, const AliasSets& aliases, bool autograd_runs);

// Whether the value itself, or another object over its memory, may be in somebody's hands after the run or in a container
// or block meanwhile, or is asked for its identity. Unlike the above it asks for the object: what only shares memory with an
// input does not leave.
bool may_escape(const Value& value);
// A node through which it may; null when it may not.
const Node* escaping_use(const Value& value);

// Whether the graph reads the value and forgets it: it is not written, nor is another object over its memory that is made of
// it, and neither leaves. Judged by the uses alone: what else shares its memory is not asked.
bool is_read_only_and_local(const Value& value);

// Whether the node's results are objects that were there before, so that a second read gives the same ones.
bool produces_existing_objects(const Node& node);

}  // namespace sconce
