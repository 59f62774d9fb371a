// Compiles the TorchScript texts of operator rows (ops/op_row.h).
#pragma once

#include "ir/graph.h"

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace sconce {

// Returns the operator's body as a graph from its arguments to its result. Requires that the row has a body. A text that
// does not compile is an internal error that names the operator.
std::unique_ptr<Graph> compile_body(const Op& op);

// The gradient of an operator as graphs, compiled from its row's texts.
struct OpGradient {
  // From the schema's arguments to a tuple: the operator's results, then what backward saves. Null: the operator itself.
  std::unique_ptr<const Graph> forward;
  // Inputs, in this order, all present even if unused: the schema's arguments; the results (named `result`, or result0,
  // result1, … if the operator has several); saved_0, saved_1, … of `forward`; the incoming gradients (`grad`, or grad0,
  // grad1, …, one per result); `defined`, if there are several: List[bool], per result whether a gradient flows to it (one
  // that does not is filled with zeros); `needs`: List[bool], per schema argument whether its gradient is needed; `records`:
  // bool, whether autograd records backward.
  // Output: a tuple with an entry per schema argument, None where there is no gradient. Entries at the end may be left out.
  // Null: the operator is composed of those of `forward`, which have gradients.
  std::unique_ptr<const Graph> backward;
  size_t saved = 0;  // how many values `forward` returns after the results
  // From the schema's arguments to a bool: whether the operator is differentiated by these texts. Null: always.
  std::unique_ptr<const Graph> condition;
};

// Appends `defined` for gradients of all `results` to the inputs of OpGradient::backward, if it has that input.
void append_all_defined(std::vector<c10::IValue>& inputs, size_t results);

// Returns the gradient of an operator: that of its row, or of the operator that it is a synonym of. Null if there is no
// text, or the overload writes its arguments, returns no tensors, or takes names of dimensions. Compiled once per
// process; any thread may call.
const OpGradient* gradient_of(const Op& op);

// Returns whether the texts may have a gradient for the schema's argument `index`.
bool has_gradient_for(const OpGradient& gradient, size_t index);

// Compiles the gradient. Requires that the row has a text of it.
OpGradient compile_gradient(const Op& op);

// Returns the graph of the last function of TorchScript source. Inlines its calls of the others and of ops/row_functions.h.
// `op` is named in errors.
std::unique_ptr<Graph> compile_function(std::string_view op, std::string_view source);

}  // namespace sconce
