// Derives dtypes, devices, sizes and strides of values from those of the inputs.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace sconce {

// The caller's autocast on the CPU.
struct CallersAutocast {
  c10::ScalarType dtype;    // to which it casts
  bool keeps_casts = true;  // it casts a leaf that requires a gradient once for all operators of the autocast region
};

// Assumptions about a graph's inputs, and about values read from them, beyond the facts that tensors carry.
struct InputAssumptions {
  std::unordered_map<int64_t, int64_t> examples;  // symbol → a size that it stood for in one call
  bool no_symbol_is_one = false;                  // every size of 1 is given as a number
  std::optional<bool> grad_mode;                  // at the start of a run
  std::optional<CallersAutocast> autocast;        // where it is on
  bool any_requires_grad = false;                 // a tensor that is given, or an element of a list, requires a gradient
  // For the result of a `prim::GetAttr` whose attribute the graph assigns: the attribute's value at the start of a run.
  std::unordered_map<const Value*, AbstractValue> initial_attribute_values;
  // For inputs and attributes whose type is not Tensor: None, numbers, tuples, lists and dicts. Lists and dicts are used
  // only if the graph changes no list or dict of that type that comes from outside.
  std::unordered_map<const Value*, AbstractValue> values;
};

// Sets the facts of every tensor value: those that follow from the graph's inputs, its constants and the attributes it
// reads, through operators, numbers and lists, branches and loops. Facts that a value has already are assumed true and kept,
// except symbolic sizes: only symbols of inputs and attributes are kept, all others are created again.
//
//   graph(%x : Float(SS(-1), 8, requires_grad=0, device=cpu)):
//     %n : int = aten::size(%x, %zero)
//     %y : Tensor = aten::view(%x, [%n, 2, 4])      gets Float(SS(-1), 2, 4, requires_grad=0, device=cpu)
//
// Tensors whose sizes, strides or memory change in place (`resize_`, `t_`, `set_`) get no facts. The facts assume the
// current default dtype, and no autocast in the caller but what lower_callers_autocast has made explicit. Returns whether
// the graph changed.
//
// With KnownNumbers::kFold, also replaces uses of numbers, conditions and None that are known by constants. What computed
// them stays, for eliminate_dead_nodes.
enum class KnownNumbers { kKeep, kFold };
bool propagate_facts(Graph& graph, const InputAssumptions& given, KnownNumbers numbers = KnownNumbers::kKeep);

// The same, with example sizes that fit together in most graphs.
bool propagate_facts(Graph& graph);

}  // namespace sconce
