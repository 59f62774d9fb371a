// form_groups: makes a kernel node (ir/kernel_node.h) of nodes that one kernel may compute.
//
//   %p : Tensor = aten::mul(%x, %w)          %s : Tensor = sconce::kernel()
//   %n : int = aten::size(%x, %i)              block0():
//   %s : Tensor = aten::add(%p, %b, %n)    →     %p : Tensor = aten::mul(%x, %w)
//                                                %s : Tensor = aten::add(%p, %b, %n)
//                                                -> (%s)
//
// A node joins the open group if its operator has a kernel rule, and what stands in between may run before the group: it has
// no effect and uses no result of the group. The group stands in the place of its last node. Independent neighbors share a
// group: one call computes them.
#pragma once

#include "ir/graph.h"

namespace sconce {

// What a kernel can do with a node.
enum class GroupRole : uint8_t {
  kNone,       // nothing; or its result may share memory with an operand, and it is no view that kernels read through
  kPointwise,  // computes it, element by element
  kFold,       // computes it: it folds rows
  kView,       // reads through it, if no fold is computed before: the view picks elements of its first operand
  kCopy,       // computes it where the operator copies what a view reads; they are a group of their own
};
GroupRole role_in_group(const Node& node);

// Which operators of tensors a node may be moved past, to join its group.
enum class GroupMoves {
  kNone,       // of none: autograd adds up gradients in the order of the graph
  kOperators,  // of any without effects
};

// Returns whether it made a kernel node.
bool form_groups(Graph& graph, GroupMoves moves);
// The pass: GroupMoves::kOperators.
bool form_groups(Graph& graph);

}  // namespace sconce
