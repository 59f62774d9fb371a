// Replaces recurrent layers on the CPU by loops over time steps.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Replaces aten::lstm, aten::gru, aten::rnn_tanh and aten::rnn_relu of padded sequences by the operators that LibTorch
// composes them of:
//
//   %y, %h = aten::gru(%x, %h0, …)    →    one product of all steps with the input weights; a loop of one product, and
//                                          pointwise operators, per step; a stack of the results
//
// Only in graphs of the CPU: cuDNN computes all steps of a layer in one call, forward and backward.
// Legal when the numbers of layers and directions are constants, and no dropout is active. A test in the graph leaves other
// sizes than usual (projections, empty sequences, one sequence without a batch) to the operator itself.
// Changes rounding: oneDNN may compute an LSTM otherwise. Returns whether the graph changed.
//
// `records_gradients`: leaves LSTMs to the operator, which trains them faster: oneDNN computes their backward in one piece.
bool decompose_rnn(Graph& graph, bool records_gradients);
// The same for calls that record no gradients.
bool decompose_rnn(Graph& graph);

}  // namespace sconce
