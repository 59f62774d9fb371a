// What is known about the tensors of a graph, from what is known about its inputs.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace sconce {

// What is known about a graph's inputs, and about what it takes out of them, beside the facts that tensors carry.
struct InputAssumptions {
  std::unordered_map<int64_t, int64_t> examples;  // for symbols: a size that each stood for in one call
  bool no_symbol_is_one = false;                  // sizes of 1 have been given as numbers
  std::optional<bool> grad_mode;                  // when the run begins
  // Of the result of a `prim::GetAttr` whose attribute the graph assigns: what it holds when the run begins.
  std::unordered_map<const Value*, AbstractValue> initial_attribute_values;
  // Of inputs and attributes that are no tensors by type: None, numbers, tuples, lists and dicts. These last two count as
  // long as the graph changes none of the type that comes from outside.
  std::unordered_map<const Value*, AbstractValue> values;
};

// Gives every tensor value the facts that follow from those of the graph's inputs, of the attributes it reads and of its
// constants: through operators, numbers and lists, branches and loops. Facts that a value has already are taken for true and
// kept, but for symbols: those of inputs and of attributes alone are given, all others are made here.
//
//   graph(%x : Float(SS(-1), 8, requires_grad=0, device=cpu)):
//     %n : int = aten::size(%x, %zero)
//     %y : Tensor = aten::view(%x, [%n, 2, 4])      gets Float(SS(-1), 2, 4, requires_grad=0, device=cpu)
//
// Nothing is claimed about tensors whose sizes, strides or memory are exchanged in place (`resize_`, `t_`, `set_`). The
// facts hold for the default dtype of now, and outside of autocast that the caller has switched on.
bool propagate_facts(Graph& graph, const InputAssumptions& given);

// With numbers for examples that go with each other in most graphs.
bool propagate_facts(Graph& graph);

}  // namespace sconce
