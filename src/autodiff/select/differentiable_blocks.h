// Which branches and loops a differentiable subgraph may have.
#pragma once

#include "autodiff/select/roles.h"
#include "autodiff/select/visibility.h"
#include "ir/graph.h"

#include <vector>

namespace sconce {

// Returns whether a differentiable subgraph may have the prim::If or prim::Loop, and a gradient flows through it:
//
//   - the nodes in its blocks have a role (roles.h), append to lists that it fills (appended_lists.h), or are
//     such branches and loops themselves;
//   - they write nothing else;
//   - no value that the caller can see is computed with, because user code may ask for its gradient;
//   - what it returns is a new tensor, or one of those that it was given, but no view of them;
//   - a tensor that it returns requires a gradient in every run, or in none. What a loop carries may begin without one.
bool is_differentiable_block_node(const Node& node, const Roles& roles, Visibility& visibility);

// Returns whether all of this holds but that the caller can see what a loop returns.
bool is_differentiable_but_for_results(const Node& loop, const Roles& roles, Visibility& visibility);

// Returns the lists that nodes nested in `node` append to.
std::vector<Value*> lists_filled_by(const Node& node);

// Returns whether a node may join the elements of an appended list in the graph that computes them: the caller can see none.
bool may_join(const Value& list, Visibility& visibility);

// Returns the number of nodes nested in `node` that a gradient flows through.
size_t differentiated_nodes_in(const Node& node, const Roles& roles);

}  // namespace sconce
