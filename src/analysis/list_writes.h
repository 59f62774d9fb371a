// What operators do to lists.
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

// Whether the node takes elements, or what it makes of them, out of the list at its input `index`: it does not write the
// list, keep it, hand it on, or ask which list it is.
bool only_reads_list(const Node& node, size_t index);

}  // namespace sconce
