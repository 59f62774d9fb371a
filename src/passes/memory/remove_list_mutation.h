// Lists that are built step by step.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   %l : Tensor[] = prim::ListConstruct(%a)
//   %b : Tensor = aten::tanh(%a)                      %b : Tensor = aten::tanh(%a)
//   %m : Tensor[] = aten::append(%l, %b)         →    %l : Tensor[] = prim::ListConstruct(%a, %b)
//
// for what is appended, inserted, set, removed, reversed and cleared at constant places, in the block that makes the list,
// as long as nobody has got hold of the list: it is made where it is complete. What is stored in it, handed on or shared
// from there on, is the one list as before. Who has read it meanwhile, reads a list of the elements it had.
//
// Leaves writes in branches and loops around which the list is made, and those that raise.
bool remove_list_mutation(Graph& graph);

}  // namespace sconce
