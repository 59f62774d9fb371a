// The loops of BagSums with vectors of kLanes elements. See vectors_code.h for what the code may call.

// Sums kVectors vectors of columns, or with `some` > 0 so many columns.
template <int kVectors, typename Index>
SCONCE_INLINE void sum_columns_of_rows(const BagOfRows<Index>& bag, int64_t column, int some) {
  constexpr int64_t kAhead = 8;  // rows that are fetched before they are added: a row lies anywhere
  Vector sums[kVectors] = {};
  for (int64_t i = 0; i < bag.count; ++i) {
    const float* const row = bag.table + static_cast<int64_t>(bag.rows[i]) * bag.columns + column;
    const int64_t next = i + kAhead < bag.count ? i + kAhead : bag.count - 1;
    const float* const later = bag.table + static_cast<int64_t>(bag.rows[next]) * bag.columns + column;
    const float factor = bag.factors != nullptr ? bag.factors[i] : 1.0F;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      __builtin_prefetch(later + v * kLanes);
      sums[v] += (some > 0 ? load_some(row, some) : load(row + v * kLanes)) * factor;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const Vector sum = sums[v] / bag.divisor;
    if (some > 0) {
      store_some(bag.out + column, sum, some);
    } else {
      store(bag.out + column + v * kLanes, sum);
    }
  }
}

template <typename Index>
void sum_rows(const BagOfRows<Index>& bag) {
  constexpr int kVectors = 4;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= bag.columns; column += kVectors * kLanes) {
    sum_columns_of_rows<kVectors>(bag, column, 0);
  }
  for (; column + kLanes <= bag.columns; column += kLanes) {
    sum_columns_of_rows<1>(bag, column, 0);
  }
  if (column < bag.columns) {
    sum_columns_of_rows<1>(bag, column, static_cast<int>(bag.columns - column));
  }
}

template <typename Index>
void add_rows(const AddedRows<Index>& added) {
  constexpr int64_t kAhead = 4;
  const int64_t vectors = added.columns / kLanes * kLanes;
  const int some = static_cast<int>(added.columns - vectors);
  for (int64_t i = 0; i < added.count; ++i) {
    if (i + kAhead < added.count) {
      const auto later = static_cast<int64_t>(added.rows[i + kAhead]);
      if (later >= added.first && later < added.last) {
        __builtin_prefetch(added.table + later * added.columns);
      }
    }
    const auto row = static_cast<int64_t>(added.rows[i]);
    if (row < added.first || row >= added.last || row == added.skipped) {
      continue;
    }
    const float* const from = added.from + i * added.distance;
    float* const to = added.table + row * added.columns;
    const float factor = added.factors != nullptr ? added.factor * added.factors[i] : added.factor;
    for (int64_t column = 0; column < vectors; column += kLanes) {
      store(to + column, load(to + column) + load(from + column) * factor);
    }
    if (some > 0) {
      store_some(to + vectors, load_some(to + vectors, some) + load_some(from + vectors, some) * factor, some);
    }
  }
}

constexpr BagSums make_bag_sums() { return {sum_rows<int64_t>, sum_rows<int32_t>, add_rows<int64_t>, add_rows<int32_t>}; }
