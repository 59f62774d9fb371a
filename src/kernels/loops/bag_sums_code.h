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

constexpr BagSums make_bag_sums() { return {sum_rows<int64_t>, sum_rows<int32_t>}; }
