// BagSums: sums of some rows of a table, for each kind of vectors of the processor.
#pragma once

#include <cstdint>

namespace sconce {

template <typename Index>
struct BagOfRows {
  const float* table = nullptr;
  int64_t columns = 0;
  const Index* rows = nullptr;
  int64_t count = 0;
  const float* factors = nullptr;  // of each row; null: 1
  float divisor = 1;               // of the sum
  float* out = nullptr;
};

struct BagSums {
  void (*of_int64)(const BagOfRows<int64_t>& bag);
  void (*of_int32)(const BagOfRows<int32_t>& bag);
};

// Returns the loops for the vectors that LibTorch's own kernels use in this process.
const BagSums& bag_sums();
// Returns the loops for vectors of 4, 8 or 16 elements. Returns null if the processor lacks such vectors.
const BagSums* bag_sums(int64_t lanes);

}  // namespace sconce
