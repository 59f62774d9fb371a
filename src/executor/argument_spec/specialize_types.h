// Derives facts about a graph's inputs, and about values read from them, from the arguments of a call.
#pragma once

#include "executor/argument_spec/argument_spec.h"
#include "ir/graph.h"
#include "passes/simplify/propagate_facts.h"

#include <span>

namespace sconce {

// Sets the facts of the graph's inputs, of elements of tuples among them, and of attributes that the graph reads. The facts
// hold for every call with the same spec of that detail.
//
//   kRanks    sizes of arguments are symbols, except sizes of 1; sizes of a module's attributes are numbers
//   kShapes   all sizes and strides are numbers
//
// Exotic tensors get no facts. The result has the sizes of these arguments as examples for the symbols.
InputAssumptions specialize_types(Graph& graph, std::span<const c10::IValue> arguments, ArgumentSpecCreator::Detail detail);

}  // namespace sconce
