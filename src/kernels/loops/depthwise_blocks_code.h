// The code of depthwise convolutions over blocks of channels; vectors_code.h comes first.

// ---- blocks from planes of pixels, and back

// Swaps, of squares of 2 · kHalf vectors and lanes, two of the four parts.
template <int kHalf, int... kLane>
SCONCE_INLINE void swap_parts(Vector (&square)[kLanes], LaneNumbers<kLane...> /*all*/) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kHalf) == 0) {
      const Vector upper = square[i];
      const Vector lower = square[i + kHalf];
      square[i] = __builtin_shuffle(upper, lower, Lanes{((kLane & kHalf) == 0 ? kLane : kLanes + kLane - kHalf)...});
      square[i + kHalf] = __builtin_shuffle(upper, lower, Lanes{((kLane & kHalf) == 0 ? kLane + kHalf : kLanes + kLane)...});
    }
  }
}

// Transposes a square of as many vectors as they have elements.
SCONCE_INLINE void transpose_square(Vector (&square)[kLanes]) {
  swap_parts<1>(square, AllLanes());
  swap_parts<2>(square, AllLanes());
  swap_parts<4>(square, AllLanes());
  if constexpr (kLanes > 8) {
    swap_parts<8>(square, AllLanes());
  }
}

// Reads pixels of some channels, whose planes lie one after the other. Other channels are zeros.
void read_block(const float* planes, int64_t pixels, int64_t channels, float* block) {
  if (pixels < kLanes) {
    for (int64_t i = 0; i < pixels; ++i) {
      for (int64_t channel = 0; channel < kLanes; ++channel) {
        block[i * kLanes + channel] = channel < channels ? planes[channel * pixels + i] : 0;
      }
    }
    return;
  }
  for (int64_t step = 0; step < pixels; step += kLanes) {
    const int64_t first = step + kLanes <= pixels ? step : pixels - kLanes;
    Vector square[kLanes];
#pragma GCC unroll 16
    for (int channel = 0; channel < kLanes; ++channel) {
      square[channel] = channel < channels ? load(planes + channel * pixels + first) : Vector{};
    }
    transpose_square(square);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      store(block + (first + i) * kLanes, square[i]);
    }
  }
}

void write_block(const float* block, int64_t pixels, int64_t channels, float* planes) {
  if (pixels < kLanes) {
    for (int64_t channel = 0; channel < channels; ++channel) {
      for (int64_t i = 0; i < pixels; ++i) {
        planes[channel * pixels + i] = block[i * kLanes + channel];
      }
    }
    return;
  }
  for (int64_t step = 0; step < pixels; step += kLanes) {
    const int64_t first = step + kLanes <= pixels ? step : pixels - kLanes;
    Vector square[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      square[i] = load(block + (first + i) * kLanes);
    }
    transpose_square(square);
#pragma GCC unroll 16
    for (int channel = 0; channel < kLanes; ++channel) {
      if (channel < channels) {
        store(planes + channel * pixels + first, square[channel]);
      }
    }
  }
}

// ---- sums

// Taps, or positions.
struct BlockRange {
  int64_t first;
  int64_t last;
};

// Returns the taps that read something at the position.
SCONCE_INLINE BlockRange taps_at(const BlockAxis& axis, int64_t position) {
  const int64_t at = position * axis.step;
  BlockRange taps = {0, axis.taps};
  while (taps.first < taps.last && at + axis.offsets[taps.first] < 0) {
    ++taps.first;
  }
  while (taps.last > taps.first && at + axis.offsets[taps.last - 1] >= axis.size) {
    --taps.last;
  }
  return taps;
}

// Returns the positions at which all of the taps read something; possibly none.
SCONCE_INLINE BlockRange positions_of(const BlockAxis& axis, BlockRange taps) {
  const int64_t before = -axis.offsets[taps.first];
  const int64_t first = before <= 0 ? 0 : (before + axis.step - 1) / axis.step;
  const int64_t room = axis.size - axis.offsets[taps.last - 1];
  const int64_t last = room <= 0 ? 0 : (room + axis.step - 1) / axis.step;
  const int64_t end = last < axis.positions ? last : axis.positions;
  return {first, end > first ? end : first};
}

// Computes kPixels neighbors in a row, or below one another, at all of which the taps read something.
template <int kPixels, bool kIsBelow>
SCONCE_INLINE void block_pixels(const BlockSums& sums, int64_t row, int64_t column, BlockRange rows, BlockRange columns) {
  const int64_t next = (kIsBelow ? sums.rows.step * sums.columns.size : sums.columns.step) * kLanes;
  const int64_t next_out = (kIsBelow ? sums.rows.distance * sums.out_width : sums.columns.distance) * kLanes;
  Vector pixels[kPixels];
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) {
    pixels[p] = sums.bias != nullptr ? load(sums.bias) : Vector{};
  }
  for (int64_t y = rows.first; y < rows.last; ++y) {
    const float* in =
        sums.in + ((row * sums.rows.step + sums.rows.offsets[y]) * sums.columns.size + column * sums.columns.step) * kLanes;
    const float* weights = sums.weights + sums.rows.weights[y] * sums.kernel_width * kLanes;
    for (int64_t x = columns.first; x < columns.last; ++x) {
      const Vector weight = load(weights + sums.columns.weights[x] * kLanes);
      const float* at = in + sums.columns.offsets[x] * kLanes;
#pragma GCC unroll 8
      for (int p = 0; p < kPixels; ++p) {
        pixels[p] += weight * load(at + p * next);
      }
    }
  }
  float* out = sums.out + ((sums.rows.first + row * sums.rows.distance) * sums.out_width + sums.columns.first +
                           column * sums.columns.distance) *
                              kLanes;
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) {
    store(out + p * next_out, clamp(pixels[p], sums.least, sums.most));
  }
}

// Computes neighbors from the position up to `end`, in a row or below one another.
template <bool kIsBelow>
SCONCE_INLINE void block_line(const BlockSums& sums, int64_t row, int64_t column, int64_t end, BlockRange rows,
                              BlockRange columns) {
  constexpr int kMany = 8;
  constexpr int kSome = 3;
  int64_t& position = kIsBelow ? row : column;
  for (; position + kMany <= end; position += kMany) {
    block_pixels<kMany, kIsBelow>(sums, row, column, rows, columns);
  }
  for (; position + kSome <= end; position += kSome) {
    block_pixels<kSome, kIsBelow>(sums, row, column, rows, columns);
  }
  for (; position < end; ++position) {
    block_pixels<1, kIsBelow>(sums, row, column, rows, columns);
  }
}

// Columns where all taps read something are computed along the rows, the others along the columns.
void depthwise_sums(const BlockSums& sums) {
  const BlockAxis& rows = sums.rows;
  const BlockAxis& columns = sums.columns;
  const BlockRange inner_rows = rows.taps > 0 ? positions_of(rows, {0, rows.taps}) : BlockRange{0, 0};
  const BlockRange inner = columns.taps > 0 ? positions_of(columns, {0, columns.taps}) : BlockRange{0, 0};
  for (int64_t row = 0; row < rows.positions; ++row) {
    block_line<false>(sums, row, inner.first, inner.last, taps_at(rows, row), {0, columns.taps});
  }
  for (int64_t column = 0; column < columns.positions; ++column) {
    if (column >= inner.first && column < inner.last) {
      column = inner.last - 1;
      continue;
    }
    const BlockRange taps = taps_at(columns, column);
    for (int64_t row = 0; row < rows.positions; ++row) {
      if (row >= inner_rows.first && row < inner_rows.last) {
        block_line<true>(sums, row, column, inner_rows.last, {0, rows.taps}, taps);
        row = inner_rows.last - 1;
        continue;
      }
      block_pixels<1, false>(sums, row, column, taps_at(rows, row), taps);
    }
  }
}

// ---- pools

template <bool kFindsIndices>
SCONCE_INLINE void maximum_at(const BlockMaximum& maximum, BlockRange rows, BlockRange columns, int64_t row, int64_t column,
                              int64_t place) {
  const int64_t width = maximum.columns.size;
  const int64_t top = row * maximum.rows.step;
  const int64_t left = column * maximum.columns.step;
  Vector most = Vector{} - __builtin_inff();
  Lanes found = Lanes{} + static_cast<int>((top + maximum.rows.offsets[rows.first]) * width + left +
                                           maximum.columns.offsets[columns.first]);
  for (int64_t y = rows.first; y < rows.last; ++y) {
    const int64_t first = (top + maximum.rows.offsets[y]) * width + left;
    for (int64_t x = columns.first; x < columns.last; ++x) {
      const int64_t index = first + maximum.columns.offsets[x];
      const Vector value = load(maximum.in + index * kLanes);
      const Lanes is_larger = (value > most) | (value != value);
      most = is_larger ? value : most;
      if (kFindsIndices) {
        found = is_larger ? Lanes{} + static_cast<int>(index) : found;
      }
    }
  }
  store(maximum.out + place * kLanes, most);
  if (kFindsIndices) {
    __builtin_memcpy(maximum.indices + place * kLanes, &found, sizeof found);
  }
}

template <bool kFindsIndices>
SCONCE_INLINE void maxima(const BlockMaximum& maximum) {
  int64_t place = 0;
  for (int64_t row = 0; row < maximum.rows.positions; ++row) {
    const BlockRange rows = taps_at(maximum.rows, row);
    for (int64_t column = 0; column < maximum.columns.positions; ++column) {
      maximum_at<kFindsIndices>(maximum, rows, taps_at(maximum.columns, column), row, column, place++);
    }
  }
}

void block_maximum(const BlockMaximum& maximum) {
  if (maximum.indices != nullptr) {
    maxima<true>(maximum);
  } else {
    maxima<false>(maximum);
  }
}

// ---- gradients of weights and biases

// Adds up the products of neighboring taps in columns, from `tap` on, over some rows of positions. `y`: the tap in rows.
template <int kTaps>
SCONCE_INLINE void block_products(const BlockProducts& products, BlockRange rows, int64_t y, int64_t tap) {
  constexpr int kPixels = kTaps <= 2 ? 4 : 2;
  const BlockAxis& columns = products.columns;
  const BlockRange inner = positions_of(columns, {tap, tap + kTaps});
  BlockRange own[kTaps];
#pragma GCC unroll 4
  for (int k = 0; k < kTaps; ++k) {
    own[k] = positions_of(columns, {tap + k, tap + k + 1});
  }
  const int64_t next = columns.step * kLanes;
  Vector sums[kTaps][kPixels] = {};
  for (int64_t row = rows.first; row < rows.last; ++row) {
    const float* gradient = products.gradient + row * columns.positions * kLanes;
    const float* in = products.in + (row * products.rows.step + products.rows.offsets[y]) * columns.size * kLanes;
    const float* taps[kTaps];
#pragma GCC unroll 4
    for (int k = 0; k < kTaps; ++k) {
      taps[k] = in + columns.offsets[tap + k] * kLanes;
    }
    int64_t column = inner.first;
    for (; column + kPixels <= inner.last; column += kPixels) {
#pragma GCC unroll 4
      for (int p = 0; p < kPixels; ++p) {
        const Vector factor = load(gradient + (column + p) * kLanes);
#pragma GCC unroll 4
        for (int k = 0; k < kTaps; ++k) {
          sums[k][p] += factor * load(taps[k] + (column + p) * next);
        }
      }
    }
#pragma GCC unroll 4
    for (int k = 0; k < kTaps; ++k) {
      for (int64_t i = own[k].first; i < inner.first && i < own[k].last; ++i) {
        sums[k][0] += load(gradient + i * kLanes) * load(taps[k] + i * next);
      }
      for (int64_t i = column > own[k].first ? column : own[k].first; i < own[k].last; ++i) {
        sums[k][0] += load(gradient + i * kLanes) * load(taps[k] + i * next);
      }
    }
  }
#pragma GCC unroll 4
  for (int k = 0; k < kTaps; ++k) {
    Vector sum = sums[k][0];
#pragma GCC unroll 4
    for (int p = 1; p < kPixels; ++p) {
      sum += sums[k][p];
    }
    float* weight =
        products.weights + (products.rows.weights[y] * products.kernel_width + columns.weights[tap + k]) * kLanes;
    store(weight, load(weight) + sum);
  }
}

void depthwise_products(const BlockProducts& products) {
  constexpr int64_t kMaxTaps = 4;
  // The elements that the taps of some rows read stay in the first level of the cache.
  constexpr int64_t kVectors = 256;
  const int64_t of_row = products.columns.positions + products.columns.size;
  const int64_t together = of_row >= kVectors ? 1 : kVectors / of_row;
  for (int64_t first = 0; first < products.rows.positions; first += together) {
    const int64_t end = first + together < products.rows.positions ? first + together : products.rows.positions;
    for (int64_t y = 0; y < products.rows.taps; ++y) {
      BlockRange rows = positions_of(products.rows, {y, y + 1});
      rows = {rows.first > first ? rows.first : first, rows.last < end ? rows.last : end};
      if (rows.first >= rows.last) {
        continue;
      }
      int64_t tap = 0;
      for (; tap + kMaxTaps <= products.columns.taps; tap += kMaxTaps) {
        block_products<kMaxTaps>(products, rows, y, tap);
      }
      switch (products.columns.taps - tap) {
        case 3: block_products<3>(products, rows, y, tap); break;
        case 2: block_products<2>(products, rows, y, tap); break;
        case 1: block_products<1>(products, rows, y, tap); break;
        default: break;
      }
    }
  }
}

void add_pixels(const float* pixels, int64_t count, float* sums) {
  constexpr int64_t kTogether = 64;  // a long sum rounds less in parts
  for (int64_t first = 0; first < count; first += kTogether) {
    Vector sum = {};
    for (int64_t i = first; i < count && i < first + kTogether; ++i) {
      sum += load(pixels + i * kLanes);
    }
    store(sums, load(sums) + sum);
  }
}
