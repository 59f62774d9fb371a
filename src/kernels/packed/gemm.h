// Gemm: a product of two matrices of float32, by BLAS or by sconce's tiles.
#pragma once

#include "kernels/packed/tiled_product.h"
#include "plan/prepared/kernel.h"

#include <cstdint>
#include <optional>

namespace sconce {

// A matrix that BLAS can read: one of its strides is 1.
struct Matrix {
  bool is_transposed = false;  // columns are contiguous
  int leading = 0;             // elements from one row to the next; of one column, if transposed
};

// Returns nothing for strides that BLAS cannot read.
std::optional<Matrix> matrix_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);
// Returns whether a rows x columns matrix has no gaps.
bool is_dense(const Matrix& matrix, int64_t rows, int64_t columns);

class Gemm {
 public:
  Gemm() = default;
  // left: m x k, right: k x n. `is_exact`: the bits are those of BLAS.
  Gemm(const Matrix& left, const Matrix& right, int m, int n, int k, bool is_exact);
  static Gemm by_tiles(const Matrix& left, const Matrix& right, int m, int n, int k);

  int64_t rows() const { return m_; }
  int64_t multiplications() const { return int64_t{m_} * n_ * k_; }
  // Computes out (m x n, dense) = left * right + bias, on LibTorch's intra-op threads. The bits of tiles do not depend on
  // the number of threads. `bias`: n elements, or null. `then`: see TiledProduct::run.
  void run(const float* left, const float* right, const float* bias, float* out, const RowsFunction& then = nullptr) const;
  // The same, added to what `out` holds.
  void add(const float* left, const float* right, float* out) const;

 private:
  void run_blas(const float* left, const float* right, bool adds, float* out) const;
  void run_tiles(const float* left, const float* right, const float* bias, bool adds, float* out,
                 const RowsFunction& then) const;
  // On this thread.
  void multiply_part(const float* left, const float* right, const float* bias, float* out, TiledProduct::Part part,
                     const RowsFunction& then) const;

  Matrix left_;
  Matrix right_;
  int m_ = 0;
  int n_ = 0;
  int k_ = 0;
  std::optional<TiledProduct> tiles_;  // else BLAS computes
};

// Returns whether tiles are faster than BLAS on this processor, packing included. The first call of the process measures it.
bool tiles_are_faster();
// Returns whether products of these sizes, of operands that are packed in each run, are faster by tiles than by BLAS on this
// processor.
bool tiles_are_faster(int64_t m, int64_t n, int64_t k);

}  // namespace sconce
