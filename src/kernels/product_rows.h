// ProductRows: the rows of a product's left operand.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <optional>
#include <vector>

namespace sconce {

// The rows of an operand of any rank, taken as a matrix (m x k) of its last dimension. Rows that do not lie at even
// distances, or whose elements lie apart, are copied.
class ProductRows {
 public:
  // Returns nothing for strides that no copy is written for. `operand` is of float32 and has elements.
  static std::optional<ProductRows> of(const at::Tensor& operand);

  int64_t count() const { return count_; }
  int64_t stride() const { return stride_; }  // elements from one row to the next
  bool are_copied() const { return !matrices_.empty(); }
  // Returns the rows of an operand with this memory.
  const float* get(const float* operand) const;

 private:
  void copy_rows(const float* from, int64_t count, float* to) const;

  int64_t count_ = 0;
  int64_t stride_ = 0;
  // The copied matrices: at these offsets, of `rows_` rows.
  std::vector<ptrdiff_t> matrices_;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t row_stride_ = 0;
  int64_t column_stride_ = 0;
  c10::DataPtr copy_;
};

// The offsets of the matrices in a batch, whose sizes and strides are the first `rank` of the tensor.
std::vector<ptrdiff_t> offsets_of_matrices(const at::Tensor& tensor, int64_t rank);

}  // namespace sconce
