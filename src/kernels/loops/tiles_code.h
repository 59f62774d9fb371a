// The code of the tiles; vectors_code.h comes first.

SCONCE_INLINE void store_part(float* to, Vector value, int count) {
  if (count == kLanes) {
    store(to, value);
  } else {
    store_some(to, value, count);
  }
}

SCONCE_INLINE Vector load_part(const float* from, int count) {
  return count == kLanes ? load(from) : load_some(from, count);
}

// Adds the sums to the biases, or to `out` if there are none. Copies the tile's fields first: the compiler reloads a field
// after each store, which might have changed it.
template <bool kIsBounded, int kVectors, int kRows>
SCONCE_INLINE void add_bounded_sums(const Tile& tile, const Vector (&sums)[kRows][kVectors]) {
  const float* const bias = tile.bias;
  const int64_t distance = tile.out_distance;
  const int last = tile.last;
  const Vector least = kIsBounded ? all(tile.bounds[0]) : Vector{};
  const Vector most = kIsBounded ? all(tile.bounds[1]) : Vector{};
  float* out = tile.out;
  Vector begin[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    begin[v] = bias != nullptr ? load(bias + v * kLanes) : Vector{};
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i, out += distance) {
    if (bias == nullptr) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        begin[v] = load_part(out + v * kLanes, v == kVectors - 1 ? last : kLanes);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vector sum = begin[v] + sums[i][v];
      store_part(out + v * kLanes, kIsBounded ? clamp(sum, least, most) : sum, v == kVectors - 1 ? last : kLanes);
    }
  }
}

template <int kVectors, int kRows>
SCONCE_INLINE void add_sums(const Tile& tile, const Vector (&sums)[kRows][kVectors]) {
  if (tile.bounds != nullptr) {
    add_bounded_sums<true>(tile, sums);
  } else {
    add_bounded_sums<false>(tile, sums);
  }
}

template <int kVectors, int kRows>
void compute_tile(const Tile& tile) {
  constexpr int kLines = (kVectors * kLanes * static_cast<int>(sizeof(float)) + 63) / 64;
  Vector sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = Vector{};
    }
  }
  const float* ahead = tile.ahead;
  for (int64_t run = 0; run < tile.runs; ++run) {
    const float* rows[kRows];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      rows[i] = tile.rows[i] + tile.offsets[run];
    }
    const float* panel = tile.panel + run * tile.run_distance;
    for (int64_t d = 0; d < tile.depth; ++d) {
      Vector weights[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        weights[v] = load(panel + v * kLanes);
      }
#pragma GCC unroll 4
      for (int line = 0; line < kLines; ++line) {
        __builtin_prefetch(ahead + line * tile.ahead_distance, 0, 2);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[i][v] += rows[i][d] * weights[v];
        }
      }
      panel += kVectors * kLanes;
      ahead += tile.ahead_step;
    }
  }
  add_sums(tile, sums);
}

// One row: elements of a run are taken in turns by several sums, which otherwise wait for one another.
template <int kVectors>
void compute_vector(const Tile& tile) {
  constexpr int kTurns = 4;
  constexpr int64_t kAhead = 1024;  // elements of the panel
  Vector sums[kTurns][kVectors] = {};
  for (int64_t run = 0; run < tile.runs; ++run) {
    const float* const row = tile.rows[0] + tile.offsets[run];
    const float* panel = tile.panel + run * tile.run_distance;
    int64_t d = 0;
    for (; d + kTurns <= tile.depth; d += kTurns) {
#pragma GCC unroll 4
      for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const float* const weights = panel + (turn * kVectors + v) * kLanes;
          sums[turn][v] += row[d + turn] * load(weights);
          if (v * kLanes % 16 == 0) {
            __builtin_prefetch(weights + kAhead, 0, 3);
          }
        }
      }
      panel += kTurns * kVectors * kLanes;
    }
    for (; d < tile.depth; ++d) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[0][v] += row[d] * load(panel + v * kLanes);
      }
      panel += kVectors * kLanes;
    }
  }
  Vector sum[1][kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    sum[0][v] = (sums[0][v] + sums[1][v]) + (sums[2][v] + sums[3][v]);
  }
  add_sums(tile, sum);
}

template <int kVectors, int kRows>
constexpr void add_tiles(TileKernels& kernels) {
  kernels.compute[kVectors - 1][kRows - 1] = compute_tile<kVectors, kRows>;
  if constexpr (kRows > 1) {
    add_tiles<kVectors, kRows - 1>(kernels);
  }
}

template <int kVectors, int kRows>
constexpr void add_panel(TileKernels& kernels) {
  kernels.rows[kVectors - 1] = kRows;
  kernels.compute_vector[kVectors - 1] = compute_vector<kVectors>;
  add_tiles<kVectors, kRows>(kernels);
}

// The sums of a tile, a row of the panel and an element of the left operand fit into the registers.
constexpr TileKernels make_tile_kernels() {
  TileKernels kernels = {};
  kernels.lanes = kLanes;
  if constexpr (kRegisters == 32) {
    kernels.fastest_vectors = 3;
    add_panel<1, 14>(kernels);
    add_panel<2, 12>(kernels);
    add_panel<3, 8>(kernels);
  } else {
    kernels.fastest_vectors = 2;
    add_panel<1, 12>(kernels);
    add_panel<2, 6>(kernels);
    add_panel<3, 4>(kernels);
  }
  return kernels;
}
