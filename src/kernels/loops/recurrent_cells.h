// RecurrentCells: one time step of a recurrent layer after the products with its weights, for each kind of vectors of the
// processor.
#pragma once

#include <cstdint>

namespace sconce {

// What a time step of an LSTM keeps for its gradients, each with `hidden` elements: sigmoid or tanh of the four gates, then
// the new c.
inline constexpr int64_t kPartsKeptOfLstm = 5;

// One row of a batch. Its gates lie one after the other, each with `hidden` elements, in LibTorch's order.
struct RecurrentRow {
  const float* of_input = nullptr;  // the product of the input, with its bias
  const float* of_state = nullptr;  // the product of the state, with its bias
  const float* h = nullptr;         // the state; may be `out`
  float* c = nullptr;               // an LSTM's other state, which is replaced
  float* out = nullptr;             // the new state
  float* kept = nullptr;            // of `lstm_kept`: kPartsKeptOfLstm
  const float* next = nullptr;      // `of_input` of the next row, which is prefetched
  int64_t hidden = 0;
};

// The gradients of one row of an LSTM's time step.
struct LstmGradientRow {
  const float* kept = nullptr;     // by the step: RecurrentRow
  const float* c = nullptr;        // before the step
  const float* of_out = nullptr;   // the gradient of the new h as a result; may be null
  const float* of_next = nullptr;  // the same as the state of the next step; may be null
  float* of_c = nullptr;           // in: the gradient of the new c; out: that of c
  float* of_sums = nullptr;        // the gradients of of_input + of_state
  int64_t hidden = 0;
};

// With sigmoid and tanh a few units in the last place off. NaN stays NaN.
struct RecurrentCells {
  using Compute = void (*)(const RecurrentRow& row);
  // Gates i, f, g, o:  c = sigmoid(f) * c + sigmoid(i) * tanh(g),  out = sigmoid(o) * tanh(c)
  Compute lstm;
  Compute lstm_kept;
  // Gates r, z, n:  new = tanh(n of_input + sigmoid(r) * n of_state),  out = (h - new) * sigmoid(z) + new
  Compute gru;
  Compute tanh;  // of the sum
  Compute relu;  // of the sum
  void (*lstm_gradient)(const LstmGradientRow& row);
};

// Returns the loops for the vectors that LibTorch's own kernels use in this process.
const RecurrentCells& recurrent_cells();
// Returns the loops for vectors of 4, 8 or 16 elements. Returns null if the processor lacks such vectors.
const RecurrentCells* recurrent_cells(int64_t lanes);

}  // namespace sconce
