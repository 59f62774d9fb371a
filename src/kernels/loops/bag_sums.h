// BagSums: sums of some rows of a table, and their gradients, for each kind of vectors of the processor.
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

// What a loop adds to rows of a table, in order.
template <typename Index>
struct AddedRows {
  const float* from = nullptr;
  int64_t distance = 0;  // from one to the next; 0: the same row is added each time
  int64_t columns = 0;
  const Index* rows = nullptr;  // the row of the table to which each is added
  int64_t count = 0;
  const float* factors = nullptr;  // of each; null: 1
  float factor = 1;                // of all
  int64_t skipped = -1;            // a row of the table to which nothing is added
  // Nothing is added to other rows of the table than these.
  int64_t first = 0;
  int64_t last = 0;
  float* table = nullptr;
};

struct BagSums {
  void (*of_int64)(const BagOfRows<int64_t>& bag);
  void (*of_int32)(const BagOfRows<int32_t>& bag);
  void (*add_int64)(const AddedRows<int64_t>& added);
  void (*add_int32)(const AddedRows<int32_t>& added);
};

// Returns the loops for the vectors that LibTorch's own kernels use in this process.
const BagSums& bag_sums();
// Returns the loops for vectors of 4, 8 or 16 elements. Returns null if the processor lacks such vectors.
const BagSums* bag_sums(int64_t lanes);

}  // namespace sconce
