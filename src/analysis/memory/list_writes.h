// How operators write and read lists.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Returns what the node does to the list that is its first input, and to nothing else:
//
//   kAppend   (list, element)
//   kExtend   (list, other list)
//   kInsert   (list, index, element); an index out of range means the nearest end
//   kSetItem  (list, index, element)
//   kPop, kDelete  (list, index); kPop returns the element
//   kReverse, kClear  (list)
//
// kOpaque for any other write and for operators on other types.
Opcode list_write_of(const Node& node);

// Returns whether the node only reads elements of the list at its input `index`, or values made of them: it does not
// write, keep or return the list, or observe its identity.
bool only_reads_list(const Node& node, size_t index);

// Returns the prim::ListUnpack that is the only use of the list; null if there are others.
const Node* unpacking_node(const Value& list);
// Returns whether the list only passes its elements to operators whose results are new.
bool is_operand_list(const Value& list);
// Returns whether an operator without effects makes the list of tensors, and the graph only unpacks it.
bool is_result_list(const Value& list);

}  // namespace sconce
