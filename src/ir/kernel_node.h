// sconce::kernel: nodes that one kernel may compute. The pass form_groups (fusion/) makes these nodes.
//
//   %y : Tensor = sconce::kernel()
//     block0():
//       %product : Tensor = aten::mul(%x, %w)
//       %sum : Tensor = aten::add(%product, %b, %one)
//       -> (%sum)
//
// The block runs once. Like a branch of prim::If, it uses values from outside as they are, and it has no params. Each of its
// returns is a tensor that a node of the block makes; no value is returned twice. A plan runs a kernel of all nodes where
// there is one, and else the nodes one by one.
//
// Nodes may write in place. In the block, each state of the tensor has a name: after the node that writes it, the tensor is
// what this node returns. Outside it keeps its name.
//
//   sconce::kernel()
//     block0():
//       %m1 : Tensor = aten::mul_(%m, %beta)
//       %m2 : Tensor = aten::add_(%m1, %grad, %one)
//       -> ()
#pragma once

#include "ir/graph.h"

#include <c10/util/FunctionRef.h>

namespace sconce {

inline const c10::Symbol kKernelKind = c10::Symbol::fromQualString("sconce::kernel");

// Returns whether the node, of a kernel node's block, writes its first operand and returns it. Effects do not tell: a batch
// norm in evaluation mode may write statistics, as far as its operator's record knows.
inline bool writes_in_place(const Node& node) {
  return node.schema() != nullptr && !node.inputs().empty() && node.op().is_marked_as_written(0);
}

// Moves the nodes, which are in program order in one block, into a new kernel node in the place of the last of them. What
// nodes outside use of them becomes a result. Requires that no node in between uses a result of them.
Node* make_kernel_node(c10::ArrayRef<Node*> nodes);

// Moves a node to the beginning of the kernel node's block. Requires that only the block uses its results.
void move_into_kernel(Node& node, Node& kernel);

// Moves the nodes of every kernel node of the graph out of its block. Returns whether there was one.
bool dissolve_kernel_nodes(Graph& graph);

// Returns the value of the block that the output of a kernel node stands for; any other value itself.
const Value& computed_value(const Value& value);
// Returns the output of a kernel node that stands for the value of its block; any other value itself.
const Value& value_outside(const Value& value);

// Calls `visit` for each node that uses the value, in the value's own kernel node and outside.
void for_each_user(const Value& value, c10::function_ref<void(const Node&)> visit);

}  // namespace sconce
