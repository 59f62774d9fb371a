// Replaces steps of recurrent layers by products and pointwise operators.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Replaces aten::gru_cell, aten::lstm_cell, aten::rnn_tanh_cell and aten::rnn_relu_cell by what LibTorch composes them of:
//
//   %h = aten::rnn_tanh_cell(%x, %h0, …)    →    two linear products, their sum, tanh
//
// Kernels compute the pointwise operators, and gradients flow through them in differentiable subgraphs. A test in the graph
// leaves batches of different sizes, for which the operator raises, to the operator itself.
// Returns whether the graph changed.
bool decompose_rnn_cells(Graph& graph);

}  // namespace sconce
