// Constructs lists at once that are built step by step.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   %l : Tensor[] = prim::ListConstruct(%a)
//   %b : Tensor = aten::tanh(%a)                      %b : Tensor = aten::tanh(%a)
//   %m : Tensor[] = aten::append(%l, %b)         →    %l : Tensor[] = prim::ListConstruct(%a, %b)
//
// Constructs a list at its last known write instead of its first. Handles append, insert, set, remove, reverse and clear at
// constant positions. A node that reads the list between two writes gets a list of the elements of that moment.
//
// Legal when
//   - the writes are in the block that makes the list;
//   - the list has not escaped before the last of these writes. From there on it is one list, as before.
//
// Does not: move writes in branches or loops inside that block, or writes that raise.
// Returns whether the graph changed.
bool remove_list_mutation(Graph& graph);

}  // namespace sconce
