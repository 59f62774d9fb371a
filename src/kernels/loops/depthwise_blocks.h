// Loops of depthwise convolutions over blocks of channels, for each kind of vectors of the processor.
//
// A block has as many channels as a vector has elements. Its pixels lie row by row, the channels of each side by side.
#pragma once

#include <cstdint>

namespace sconce {

// One dimension of a convolution: position i of the result, which is pixel `first + i · distance` of a row or a column, is a
// sum over taps k of what is read at `i · step + offsets[k]`, times the weight `weights[k]`. A tap that reads nothing is
// left out. Offsets ascend.
struct BlockAxis {
  int64_t size = 0;  // of what is read
  int64_t positions = 0;
  int64_t step = 1;
  int64_t first = 0;
  int64_t distance = 1;
  int64_t taps = 0;
  const int64_t* offsets = nullptr;
  const int64_t* weights = nullptr;
};

// Sums of a block: a convolution, or the gradient of its image.
struct BlockSums {
  BlockAxis rows;
  BlockAxis columns;
  const float* in = nullptr;
  const float* weights = nullptr;  // {kernel height, kernel width, channels of the block}
  const float* bias = nullptr;     // {channels of the block}; null: zeros
  float* out = nullptr;
  int64_t out_width = 0;
  int64_t kernel_width = 0;
  float least = 0;  // results are clamped; NaN stays NaN
  float most = 0;
};

// The largest of what the taps read, as LibTorch's pools find it: NaN is the largest, and of several NaN the last is found.
struct BlockMaximum {
  BlockAxis rows;
  BlockAxis columns;
  const float* in = nullptr;
  float* out = nullptr;        // a pixel per position
  int32_t* indices = nullptr;  // of what was found, row by row, per position and channel; may be null
};

// Products that are added to the gradient of the weights of a block: per tap, those of `gradient`, which has a pixel per
// position, and what the tap reads.
struct BlockProducts {
  BlockAxis rows;
  BlockAxis columns;
  const float* in = nullptr;
  const float* gradient = nullptr;
  float* weights = nullptr;  // {kernel height, kernel width, channels of the block}
  int64_t kernel_width = 0;
};

}  // namespace sconce
