// Tiles: the innermost loops of products and convolutions with packed weights, for each kind of vectors of the processor.
#pragma once

#include <cstdint>

namespace sconce {

// A tile of a result: some rows times the columns of one panel, all of float32. A row of the left operand is a number of
// runs of `depth` elements each: one run in a product, one for each row of the kernel in a convolution. Runs lie at the same
// offsets from the first element of each row. Distances are in elements.
//
//   out[i][j] = begin[j] + sum over runs r and d < depth of rows[i][offsets[r] + d] * panel[r][d][j]
struct Tile {
  const float* const* rows = nullptr;
  const int64_t* offsets = nullptr;  // of the runs
  int64_t runs = 0;
  int64_t depth = 0;
  const float* panel = nullptr;  // of `vectors * lanes` columns
  int64_t run_distance = 0;      // of the panel, from one run to the next
  float* out = nullptr;
  int64_t out_distance = 0;       // from one row to the next
  int last = 0;                   // columns in the last vector
  const float* bias = nullptr;    // as many as the panel has columns; null: sums begin with what `out` holds
  const float* bounds = nullptr;  // results are clamped to bounds[0] and bounds[1], and NaN stays NaN; null: they are not
  // The prefetches: `ahead_step` elements further in each step of depth, and lines of the cache at that distance.
  const float* ahead = nullptr;
  int64_t ahead_step = 0;
  int64_t ahead_distance = 0;
};

using ComputeTile = void (*)(const Tile& tile);

struct TileKernels {
  static constexpr int kMaxVectors = 3;
  static constexpr int kMaxRows = 14;

  int64_t lanes;
  int64_t fastest_vectors;  // of a panel
  int rows[kMaxVectors];    // that a tile has at most, by the panel's vectors - 1: they fill the registers
  ComputeTile compute[kMaxVectors][kMaxRows];  // [vectors - 1] [rows - 1]
  // For products of one row. They sum in another order than the others.
  ComputeTile compute_vector[kMaxVectors];
};

// Returns the loops for vectors of 4, 8 or 16 elements. Returns null if the processor lacks such vectors.
const TileKernels* tile_kernels(int64_t lanes);
// Returns the loops for the vectors that LibTorch's own kernels use in this process.
const TileKernels& tile_kernels();

}  // namespace sconce
