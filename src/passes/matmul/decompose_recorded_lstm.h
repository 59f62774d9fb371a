// Computes an LSTM and its gradients by products and one kernel each, in recorded steps.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   %y, %h, %c, %workspace = aten::mkldnn_rnn_layer(%x, …)
//     →  %y, %h, %c, %kept = sconce::lstm_layer_for_gradients(aten::linear(%x, …), …)
//   %dx, %dw, %ds, %db, %db2, %dh, %dc = aten::mkldnn_rnn_layer_backward(%x, …, %workspace)
//     →  %dsums, %dh, %dc = sconce::lstm_layer_backward(%kept, …)
//        %dx = aten::matmul(%dsums, …)   %dw = aten::mm(…)   …
//
// oneDNN alone reads its workspace, so a layer is replaced together with its gradients, or not at all.
//
// Legal for float32 on the CPU, in graphs that record no gradients. Results differ by rounding. Returns whether the graph
// changed.
bool decompose_recorded_lstm(Graph& graph);

}  // namespace sconce
