#include "kernels/packed/gemm.h"

#include "kernels/loops/forks.h"
#include "kernels/loops/transpose.h"
#include "kernels/packed/scratch.h"
#include "plan/intra_op_threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

// BLAS, as LibTorch exports it. Matrices are in column-major order.
extern "C" void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb, const float* beta,
                       float* c, const int* ldc);

namespace sconce {
namespace {

// Packing reads and writes each element of the right matrix, which fewer rows do not repay.
constexpr int64_t kMinRows = 8;
// A thread keeps its memory for packed panels: 64 MiB at most.
constexpr int64_t kMaxPacked = 1 << 24;
// A thread more packs its part, too.
constexpr int64_t kMultiplicationsOfThread = 1 << 20;

bool fits_int(int64_t size) { return size <= std::numeric_limits<int>::max(); }

thread_local Scratch packed_panels;
thread_local Scratch transposed_rows;

// Packed panels stay in the second level of the cache until they are multiplied.
constexpr int64_t kPackedTogether = 1 << 17;

// MKL leaves out AVX-512 on processors of other makers than its own: its products take more than twice the time of tiles
// there, and about the same elsewhere. The bound lies far from both, and the two take turns, so that what else the machine
// does meets both alike: each process must choose the same, for the same bits.
bool measure_tiles() {
  using Clock = std::chrono::steady_clock;
  constexpr int kRows = 64;
  constexpr int kSize = 128;
  constexpr double kMinGain = 1.5;
  const IntraOpThreads one(1);
  const std::vector<float> left(kRows * kSize, 1.0F);
  const std::vector<float> right(kSize * kSize, 1.0F);
  std::vector<float> out(kRows * kSize);
  const Matrix rows{.leading = kSize};
  const auto seconds_of = [&](const Gemm& product) {
    const auto start = Clock::now();
    product.run(left.data(), right.data(), nullptr, out.data());
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const Gemm by_blas(rows, rows, kRows, kSize, kSize, /*is_exact=*/true);
  const Gemm by_tiles = Gemm::by_tiles(rows, rows, kRows, kSize, kSize);
  constexpr size_t kTimes = 21;
  std::vector<double> gains;
  for (size_t i = 0; i < kTimes; ++i) {
    const double blas = seconds_of(by_blas);
    gains.push_back(blas / seconds_of(by_tiles));
  }
  std::ranges::nth_element(gains, gains.begin() + kTimes / 2);
  return gains[kTimes / 2] > kMinGain;
}

}  // namespace

std::optional<Matrix> matrix_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  if (!fits_int(rows) || !fits_int(columns) || !fits_int(row_stride) || !fits_int(column_stride)) {
    return std::nullopt;
  }
  if ((column_stride == 1 || columns == 1) && row_stride >= std::max<int64_t>(1, columns)) {
    return Matrix{false, static_cast<int>(row_stride)};
  }
  if ((row_stride == 1 || rows == 1) && column_stride >= std::max<int64_t>(1, rows)) {
    return Matrix{true, static_cast<int>(column_stride)};
  }
  return std::nullopt;
}

bool is_dense(const Matrix& matrix, int64_t rows, int64_t columns) {
  return matrix.leading == (matrix.is_transposed ? rows : columns);
}

bool tiles_are_faster() {
  static const bool are_faster = measure_tiles();
  return are_faster;
}

bool tiles_are_faster(int64_t m, int64_t n, int64_t k) {
  return m >= kMinRows && n > 1 && k > 1 && n * k <= kMaxPacked && m * k <= kMaxPacked && tiles_are_faster();
}

Gemm::Gemm(const Matrix& left, const Matrix& right, int m, int n, int k, bool is_exact)
    : left_(left), right_(right), m_(m), n_(n), k_(k) {
  if (!is_exact && tiles_are_faster(m, n, k)) {
    *this = by_tiles(left, right, m, n, k);
  }
}

Gemm Gemm::by_tiles(const Matrix& left, const Matrix& right, int m, int n, int k) {
  Gemm product(left, right, m, n, k, /*is_exact=*/true);
  product.tiles_.emplace(Panels(tile_kernels(), 1, n, 1, 1, k), std::vector<int64_t>{0}, k);
  return product;
}

void Gemm::run(const float* left, const float* right, const float* bias, float* out, const RowsFunction& then) const {
  if (tiles_) {
    run_tiles(left, right, bias, /*adds=*/false, out, then);
    return;
  }
  for (int row = 0; row < m_ && bias != nullptr; ++row) {
    std::memcpy(out + static_cast<size_t>(row) * static_cast<size_t>(n_), bias, static_cast<size_t>(n_) * sizeof(float));
  }
  run_blas(left, right, /*adds=*/bias != nullptr, out);
  if (then) {
    fork_by_elements(m_, n_, then);
  }
}

void Gemm::add(const float* left, const float* right, float* out) const {
  tiles_ ? run_tiles(left, right, nullptr, /*adds=*/true, out, nullptr) : run_blas(left, right, /*adds=*/true, out);
}

void Gemm::run_blas(const float* left, const float* right, bool adds, float* out) const {
  // A row-major matrix is the transpose of a column-major one: out' = right' * left'.
  const float alpha = 1;
  const float beta = adds ? 1 : 0;
  sgemm_(right_.is_transposed ? "T" : "N", left_.is_transposed ? "T" : "N", &n_, &m_, &k_, &alpha, right, &right_.leading,
         left, &left_.leading, &beta, out, &n_);
}

// Each thread packs what it multiplies itself, though others pack the same: to read it from another thread's cache takes
// longer.
void Gemm::run_tiles(const float* left, const float* right, const float* bias, bool adds, float* out,
                     const RowsFunction& then) const {
  const auto panels = static_cast<int64_t>(tiles_->panels().panels().size());
  const bool cuts_rows = m_ >= n_;
  const int64_t most = cuts_rows ? std::max<int64_t>(1, m_ / kMinRows) : panels;
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const int64_t parts = std::clamp<int64_t>(multiplications() / kMultiplicationsOfThread, 1, std::min(most, threads));
  const auto run_part = [&](int64_t part) {
    TiledProduct::Part cut{.last_row = m_, .last_panel = panels, .adds = adds};
    (cuts_rows ? cut.first_row : cut.first_panel) = (cuts_rows ? m_ : panels) * part / parts;
    (cuts_rows ? cut.last_row : cut.last_panel) = (cuts_rows ? m_ : panels) * (part + 1) / parts;
    multiply_part(left, right, bias, out, cut, cuts_rows ? then : RowsFunction(nullptr));
  };
  if (parts == 1) {
    run_part(0);
  } else {
    at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        run_part(part);
      }
    });
  }
  if (then && !cuts_rows) {
    fork_by_elements(m_, n_, then);
  }
}

void Gemm::multiply_part(const float* left, const float* right, const float* bias, float* out, TiledProduct::Part part,
                         const RowsFunction& then) const {
  const Panels& panels = tiles_->panels();
  const auto find_rows = [&](int64_t first, int64_t last, const float** found) {
    const float* row = left + first * left_.leading;
    int64_t distance = left_.leading;
    if (left_.is_transposed) {
      float* const copy = transposed_rows.of((last - first) * k_);
      transpose(left + first, left_.leading, k_, last - first, copy, k_);
      row = copy;
      distance = k_;
    }
    for (; first < last; ++first, row += distance) {
      *found++ = row;
    }
  };
  float* const packed = packed_panels.of(panels.elements());
  const int64_t of_panel = panels.elements() / static_cast<int64_t>(panels.panels().size());
  const bool has_all_panels = then || left_.is_transposed;  // else rows would be transposed for each group of panels
  const int64_t together = has_all_panels ? part.last_panel : std::max<int64_t>(1, kPackedTogether / of_panel);
  for (const int64_t end = part.last_panel; part.first_panel < end; part.first_panel = part.last_panel) {
    part.last_panel = std::min(end, part.first_panel + together);
    panels.pack({.data = right,
                 .bias = bias,
                 .column_distance = right_.is_transposed ? right_.leading : 1,
                 .channel_distance = right_.is_transposed ? 1 : right_.leading},
                packed, part.first_panel, part.last_panel);
    tiles_->run_part(packed, {.count = m_, .elements = k_, .find = find_rows}, out, part, then);
  }
}

}  // namespace sconce
