// Loops of convolutions that compute without a matrix product, for each kind of vectors of the processor.
#pragma once

#include "kernels/loops/depthwise_blocks.h"
#include "kernels/loops/plane_loops.h"
#include "kernels/loops/row_norms.h"

#include <cstdint>

namespace sconce {

// The operands and the result of the loops, all of float32. Distances are in elements. The result is channels-last.
struct DirectLoops {
  const float* image = nullptr;
  // Of a depthwise convolution, {kernel, channels}; else {channels in, kernel, channels out}.
  const float* weights = nullptr;
  const float* bias = nullptr;  // null: zeros
  float* out = nullptr;
  int64_t height = 0;  // of an image, as the width
  int64_t width = 0;
  int64_t channels_in = 0;
  int64_t image_distance = 0;
  int64_t row_distance = 0;
  int64_t pixel_distance = 0;
  int64_t channel_distance = 0;
  int64_t out_height = 0;
  int64_t out_width = 0;
  int64_t channels_out = 0;
  int64_t kernel_height = 0;
  int64_t kernel_width = 0;
  int64_t stride_height = 0;
  int64_t stride_width = 0;
  int64_t padding_height = 0;
  int64_t padding_width = 0;
  float least = 0;  // results are clamped; NaN stays NaN
  float most = 0;
};

// One channel of a depthwise convolution of a single row: out[i] = bias + Σₖ weights[k] · image[i - padding + k · dilation].
// The elements of each lie one after the other.
struct LineOfConvolution {
  const float* image = nullptr;
  const float* weights = nullptr;
  float* out = nullptr;
  float bias = 0;
  int64_t width = 0;  // of the image
  int64_t out_width = 0;
  int64_t kernel = 0;
  int64_t dilation = 1;
  int64_t padding = 0;
  float least = 0;  // results are clamped; NaN stays NaN
  float most = 0;
};

// Neighboring pixels of a channels-last image. Distances are in elements.
struct PixelWindow {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_distance = 0;
  int64_t channels = 0;
};

// Computes rows of the result, those of all images counted on.
using DirectRows = void (*)(const DirectLoops& loops, int64_t first, int64_t last);

// The loops for one kind of vectors. They overlap where sizes are not multiples: a result has at least `lanes` channels, and
// rows of at least as many pixels as a loop computes at a time.
struct DirectKernels {
  struct OfWidth {
    DirectRows rows[2][3];  // [stride of columns: 1, 2] [pixels at a time: 7, 4, 1]
  };
  int64_t lanes;
  OfWidth depthwise[3];  // kernels that are 3, 5 and 7 wide
  // For images of few channels. [vectors of output channels at a time: 1, 2] [pixels at a time: `pixels`, 1]
  DirectRows few_channels[2][2];
  int64_t pixels;
  void (*depthwise_line)(const LineOfConvolution& line);
  // Read, and write, a block of up to `lanes` channels, whose planes lie one after the other.
  void (*read_block)(const float* planes, int64_t pixels, int64_t channels, float* block);
  void (*write_block)(const float* block, int64_t pixels, int64_t channels, float* planes);
  void (*depthwise_sums)(const BlockSums& sums);
  void (*block_maximum)(const BlockMaximum& maximum);
  void (*depthwise_products)(const BlockProducts& products);
  // Adds the pixels of a block to `sums`.
  void (*add_pixels)(const float* pixels, int64_t count, float* sums);
  PlaneLoops planes;
  RowNormLoops row_norms;
  // Write the mean of each row of a dense matrix, or of each column of a matrix with at least `lanes` columns, whose rows
  // are `distance` elements apart.
  void (*mean_of_rows)(const float* matrix, int64_t rows, int64_t columns, float* out);
  void (*mean_of_columns)(const float* matrix, int64_t rows, int64_t columns, int64_t distance, float* out);
  // Writes the largest element of each channel, of which there are at least `lanes`; NaN if there is one.
  void (*maximum_of_pixels)(const PixelWindow& window, const float* pixels, float* out);
};

// Returns the loops for vectors of `lanes` elements. Returns null if the processor lacks such vectors.
const DirectKernels* direct_kernels(int64_t lanes);
// Returns the loops for the vectors that LibTorch's own kernels use in this process; null if there are none.
const DirectKernels* direct_kernels();

}  // namespace sconce
