// Gemm: products by tiles, of operands that are packed in each run, beside LibTorch's.
#include "kernels/packed/gemm.h"

#include "tests/support/threads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace sconce {
namespace {

using testing::Threads;

// How an operand lies in memory.
struct Layout {
  bool is_transposed;
  int64_t gap;  // between rows, or columns if transposed
};
const std::vector<Layout> kLayouts = {{false, 0}, {true, 0}, {false, 3}, {true, 5}};

at::Tensor random_matrix(int64_t rows, int64_t columns, const Layout& layout) {
  return layout.is_transposed ? at::randn({columns, rows + layout.gap}).narrow(1, 0, rows).t()
                              : at::randn({rows, columns + layout.gap}).narrow(1, 0, columns);
}

Matrix form_of(const at::Tensor& matrix, const Layout& layout) {
  return {layout.is_transposed, static_cast<int>(matrix.stride(layout.is_transposed ? 1 : 0))};
}

struct Product {
  at::Tensor left;
  at::Tensor right;
  at::Tensor bias;
  Gemm gemm;
};

Product product_of(int64_t m, int64_t n, int64_t k, const Layout& left, const Layout& right, bool has_bias) {
  Product product{random_matrix(m, k, left),
                  random_matrix(k, n, right) / std::sqrt(static_cast<double>(k)),
                  has_bias ? at::randn({n}) : at::Tensor(),
                  {}};
  if (right.is_transposed || right.gap > 0) {  // the quotient is dense
    const at::Tensor elements = product.right.clone();
    product.right = random_matrix(k, n, right);
    product.right.copy_(elements);
  }
  product.gemm = Gemm::by_tiles(form_of(product.left, left), form_of(product.right, right), static_cast<int>(m),
                                static_cast<int>(n), static_cast<int>(k));
  return product;
}

at::Tensor run(const Product& product, const RowsFunction& then = nullptr) {
  const at::Tensor out = at::full({product.left.size(0), product.right.size(1)}, std::numeric_limits<float>::quiet_NaN());
  product.gemm.run(product.left.const_data_ptr<float>(), product.right.const_data_ptr<float>(),
                   product.bias.defined() ? product.bias.const_data_ptr<float>() : nullptr, out.mutable_data_ptr<float>(),
                   then);
  return out;
}

at::Tensor expected_of(const Product& product) {
  const at::Tensor result = at::mm(product.left.to(at::kDouble), product.right.to(at::kDouble));
  return (product.bias.defined() ? result + product.bias : result).to(at::kFloat);
}

TEST(Gemm, MultipliesMatricesOfAllLayouts) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  constexpr double kTolerance = 1e-4;
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                   {8, 64, 64},
                                                                   {13, 7, 5},
                                                                   {30, 113, 769},
                                                                   {100, 16, 63},
                                                                   {9, 3000, 70},
                                                                   {400, 48, 2},
                                                                   {1000, 33, 130}}) {
    for (const Layout& left : kLayouts) {
      for (const Layout& right : kLayouts) {
        const Product product = product_of(m, n, k, left, right, /*has_bias=*/(m + left.gap) % 2 == 0);
        ASSERT_TRUE(at::allclose(run(product), expected_of(product), kTolerance, kTolerance))
            << m << " x " << n << " x " << k << ", left " << left.is_transposed << left.gap << ", right "
            << right.is_transposed << right.gap;
      }
    }
  }
}

TEST(Gemm, ComputesTheSameBitsOnAnyNumberOfThreads) {
  const at::NoGradGuard no_grad;
  at::manual_seed(2);
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{40, 900, 800}, {900, 50, 900}, {333, 331, 160}}) {
    for (const Layout& left : kLayouts) {
      const Product product = product_of(m, n, k, left, kLayouts[1], /*has_bias=*/true);
      at::Tensor by_one;
      for (const int threads : {1, 2, 3, 7}) {
        const Threads scope(threads);
        const at::Tensor out = run(product);
        by_one = by_one.defined() ? by_one : out;
        ASSERT_TRUE(at::equal(out, by_one)) << m << " x " << n << " x " << k << " on " << threads << " threads";
      }
    }
  }
}

TEST(Gemm, HandsOutEachRowOnceItIsComplete) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  const Threads scope(2);
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{40, 900, 200}, {900, 50, 100}, {20, 30, 10}}) {
    for (const Layout& left : kLayouts) {
      const Product product = product_of(m, n, k, left, kLayouts[0], /*has_bias=*/false);
      const at::Tensor plain = run(product);
      const at::Tensor out = at::full({m, n}, std::numeric_limits<float>::quiet_NaN());
      auto* const elements = out.mutable_data_ptr<float>();
      const int64_t columns = n;
      product.gemm.run(product.left.const_data_ptr<float>(), product.right.const_data_ptr<float>(), nullptr, elements,
                       [&](int64_t first, int64_t last) {
                         for (int64_t i = first * columns; i < last * columns; ++i) {
                           elements[i] = 2 * elements[i] + 1;
                         }
                       });
      ASSERT_TRUE(at::equal(out, 2 * plain + 1)) << m << " x " << n;
    }
  }
}

TEST(Gemm, KeepsSpecialValues) {
  const at::NoGradGuard no_grad;
  const Layout dense = kLayouts[0];
  Product product = product_of(16, 33, 20, dense, dense, /*has_bias=*/true);
  const float infinity = std::numeric_limits<float>::infinity();
  product.left[3][2] = infinity;
  product.left[5][19] = std::numeric_limits<float>::quiet_NaN();
  product.right[7][32] = -infinity;
  const at::Tensor out = run(product);
  ASSERT_TRUE(at::allclose(out, expected_of(product), 1e-4, 1e-4, /*equal_nan=*/true));
  ASSERT_FALSE(out.isfinite().all().item<bool>());
}

TEST(Gemm, HasTheBitsOfBlasIfExact) {
  const at::NoGradGuard no_grad;
  at::manual_seed(4);
  const at::Tensor left = at::randn({64, 96});
  const at::Tensor right = at::randn({96, 80});
  const Gemm gemm({false, 96}, {false, 80}, 64, 80, 96, /*is_exact=*/true);
  const at::Tensor out = at::empty({64, 80});
  gemm.run(left.const_data_ptr<float>(), right.const_data_ptr<float>(), nullptr, out.mutable_data_ptr<float>());
  EXPECT_TRUE(at::equal(out, at::mm(left, right)));
}

}  // namespace
}  // namespace sconce
