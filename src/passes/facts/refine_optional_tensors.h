#pragma once

#include "ir/graph.h"
#include "passes/simplify/propagate_facts.h"

namespace sconce {

// Makes users of an optional tensor that is there users of a tensor:
//
//   %bias : Tensor? = prim::GetAttr[name="bias"](%self)
//   %there : Tensor = prim::unchecked_cast(%bias)
//
// Legal because the assumptions hold in every run of the graph. Gradients flow through tensors only (autodiff/), and facts
// are facts of tensors. Considers inputs and attributes. Returns whether the graph changed.
bool refine_optional_tensors(Graph& graph, const InputAssumptions& given);

}  // namespace sconce
