// Loops over planes: the pixels of one channel of one image, which lie one after the other.
#pragma once

#include <cstdint>

namespace sconce {

// The gradient of what a batch norm reads, at each pixel: `gradient · scale + (x - mean) · of_x + shift`.
struct PlaneGradient {
  float scale = 0;
  float mean = 0;
  float of_x = 0;
  float shift = 0;
};

// A sum has as many parts as a vector has elements, to which the loops add sums of some pixels in float32.
struct PlaneLoops {
  bool (*are_finite)(const float* x, int64_t pixels);
  void (*add)(const float* x, int64_t pixels, double* sums);
  void (*add_squares)(const float* x, int64_t pixels, float mean, double* sums);  // Σ (x - mean)²
  // Σ gradient, and Σ gradient · (x - mean)
  void (*add_gradients)(const float* gradient, const float* x, int64_t pixels, float mean, double* sums, double* products);
  void (*scale)(const float* x, int64_t pixels, float scale, float shift, float* out);  // x · scale + shift
  void (*scale_gradient)(const float* gradient, const float* x, int64_t pixels, const PlaneGradient& by, float* out);
};

}  // namespace sconce
