// The arguments of a call → facts about a graph's inputs, and about all that it takes out of them.
#pragma once

#include "executor/argument_spec/argument_spec.h"
#include "ir/graph.h"
#include "passes/simplify/propagate_facts.h"

#include <span>

namespace sconce {

// Gives the graph's inputs, the elements of tuples among them and the attributes that it reads the facts that hold for every
// call with the same spec of that detail. For kRanks: sizes of arguments are symbols, but for those of 1; those of a
// module's attributes are numbers. For kShapes all are numbers, and strides too. Exotic tensors get none. What comes back
// has, for the symbols made, the sizes of these arguments as examples.
InputAssumptions specialize_types(Graph& graph, std::span<const c10::IValue> arguments, ArgumentSpecCreator::Detail detail);

}  // namespace sconce
