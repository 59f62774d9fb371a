// SoftmaxRows: what attention computes with rows of scores, for each kind of vectors of the processor.
#pragma once

#include <cstdint>

namespace sconce {

struct SoftmaxRows {
  int64_t lanes;
  // Replaces scores by exp(scores - their maximum). Returns the maximum and the sum of the results. Without any score above
  // -infinity, the results are 0.
  struct Sum {
    float most;
    float sum;
  };
  Sum (*exponentiate)(float* scores, int64_t count);
  // Replaces scores by exp(scores - shift), and gradients of these by those of the scores, times `scale`:
  //   gradients[i] = exp(scores[i] - shift) * (gradients[i] - mean) * scale
  void (*differentiate)(float* scores, float* gradients, int64_t count, float shift, float mean, float scale);
  // scores[i] = scores[i] * scale + (mask != nullptr ? mask[i * distance] : 0)
  void (*prepare)(float* scores, int64_t count, float scale, const float* mask, int64_t distance);
  // The sum of products.
  float (*dot)(const float* a, const float* b, int64_t count);
};

// Returns the loops for the vectors that LibTorch's own kernels use in this process.
const SoftmaxRows& softmax_rows();
// Returns the loops for vectors of 4, 8 or 16 elements. Returns null if the processor lacks such vectors.
const SoftmaxRows* softmax_rows(int64_t lanes);

}  // namespace sconce
