// Loops of norms over the rows of a matrix, whose elements lie one after the other.
#pragma once

#include <cstdint>

namespace sconce {

// Normalizes rows: out = (x - mean) · deviation · weight + bias, where `deviation` is the inverse one. All of float32; sums
// are added in float64, in parts of float32.
struct RowNorms {
  int64_t columns = 0;
  double eps = 0;
  const float* x = nullptr;
  const float* weight = nullptr;  // {columns}; null: ones
  const float* bias = nullptr;    // {columns}; null: zeros
  float* out = nullptr;
  float* means = nullptr;       // {rows}
  float* deviations = nullptr;  // {rows}
};

// The gradients of it. Those of weight and bias are added to what is there.
struct RowNormGradients {
  int64_t columns = 0;
  const float* gradient = nullptr;
  const float* x = nullptr;
  const float* weight = nullptr;  // {columns}; null: ones
  const float* means = nullptr;
  const float* deviations = nullptr;
  float* of_x = nullptr;       // null: not asked for, as the others
  float* of_weight = nullptr;  // {columns}
  float* of_bias = nullptr;    // {columns}
};

struct RowNormLoops {
  void (*normalize)(const RowNorms& norms, int64_t first, int64_t last);
  void (*add_gradients)(const RowNormGradients& gradients, int64_t first, int64_t last);
};

}  // namespace sconce
