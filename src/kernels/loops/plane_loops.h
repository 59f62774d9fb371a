// Loops over planes: the pixels of one channel of one image, which lie one after the other.
#pragma once

#include <cstdint>

namespace sconce {

// The gradient of what a batch norm reads, at each pixel: `(gradient - mean_gradient - (x - mean) · of_x) · scale`. The
// difference is taken first: of few pixels, it is much smaller than the gradient.
struct PlaneGradient {
  float mean_gradient = 0;
  float mean = 0;
  float of_x = 0;
  float scale = 0;
};

// Sums are added in float64, in parts of float32. Results must not lie where a loop reads.
struct PlaneLoops {
  bool (*are_finite)(const float* x, int64_t pixels);
  double (*sum)(const float* x, int64_t pixels);
  double (*sum_of_squares)(const float* x, int64_t pixels, float mean);  // Σ (x - mean)²
  // Adds Σ gradient, and Σ gradient · (x - mean).
  void (*add_gradients)(const float* gradient, const float* x, int64_t pixels, float mean, double* sum, double* product);
  void (*scale)(const float* x, int64_t pixels, float scale, float shift, float* out);  // x · scale + shift
  void (*scale_gradient)(const float* gradient, const float* x, int64_t pixels, const PlaneGradient& by, float* out);
};

}  // namespace sconce
