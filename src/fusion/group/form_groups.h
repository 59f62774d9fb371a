// Makes kernel nodes of the nodes that one kernel may compute.
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
//
// An operator that writes a tensor in place joins, too. Then what stands in between must not read elements of tensors, or
// raise; the group has no reductions, and no views of what it writes or computes; and neighbors that are independent of each
// other have groups of their own. All uses of the operator's result become uses of the tensor, which is the same object; in
// the group, later uses become uses of the result (ir/kernel_node.h).
#pragma once

#include "ir/graph.h"

namespace sconce {

// How a kernel can compute a node.
enum class GroupRole : uint8_t {
  kNone,       // nothing; or its result may share memory with an operand, and it is no view that kernels read through
  kPointwise,  // computes it, element by element
  kReduction,  // computes it: it reduces rows
  kWrite,      // computes it, element by element, over its first operand
  kView,       // reads through it, if no reduction is computed before: the view picks elements of its first operand
  kDraw,       // computes it in captures, with random numbers; it is a group of its own
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
