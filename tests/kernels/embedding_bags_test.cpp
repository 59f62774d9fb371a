// Embedding bags, and gradients of embeddings, by one kernel: the results, and the errors, of LibTorch's operators.
#include "tests/kernels/prepared_function.h"
#include "tests/support/threads.h"

#include "kernels/loops/bag_sums.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace sconce {
namespace {

using testing::expect_alike;
using testing::optional;
using testing::plain_function;
using testing::prepared_function;

std::string source_of(const std::string& settings, const std::string& result = "y") {
  return "def f(table: Tensor, indices: Tensor, offsets: Tensor, factors: Optional[Tensor]):\n"
         "    y, bag, size, largest = torch.embedding_bag(table, indices, offsets, " +
         settings + ")\n    return " + result + "\n";
}

at::Tensor offsets_of(const std::vector<int64_t>& offsets, at::ScalarType dtype) {
  return at::tensor(offsets, at::kLong).to(dtype);
}

TEST(EmbeddingBags, AreThoseOfLibTorch) {
  const at::NoGradGuard no_grad;
  at::manual_seed(0);
  for (const int threads : {1, 3}) {
    const testing::Threads guard(threads);
    for (const int64_t columns : {1, 3, 16, 64, 100, 200}) {
      const at::Tensor table = at::randn({50, columns});
      table[7][0] = std::numeric_limits<float>::quiet_NaN();
      table[8].fill_(std::numeric_limits<float>::infinity());
      for (const at::ScalarType dtype : {at::kLong, at::kInt}) {
        const at::Tensor indices = at::randint(0, 50, {400}).to(dtype);
        const at::Tensor factors = at::randn({400});
        struct Case {
          std::string settings;
          std::vector<int64_t> offsets;
          bool has_factors = false;
        };
        for (const Case& each : {Case{"False, 0, False, factors, False, None", {0, 3, 3, 100, 250, 400}},
                                 Case{"False, 0, False, factors, False, None", {0, 1, 200}, true},
                                 Case{"False, 1, False, factors, True, None", {0, 0, 17, 300, 400}},
                                 Case{"False, 1, False, factors, True, None", {0, 0, 17, 300, 399}},  // LibTorch's
                                 Case{"False, 0, False, factors, True, None", {0, 0, 17, 300, 399}},
                                 Case{"False, 1, False, factors, False", {0, 5, 30, 300}},
                                 Case{"True, 2, False, factors, False, None", {0, 5, 30, 300}},  // LibTorch's
                                 Case{"False, 0, False, factors, False, 4", {0, 5, 30, 300}}}) {
          const std::string source = source_of(each.settings);
          const torch::jit::Stack arguments = {table, indices, offsets_of(each.offsets, dtype),
                                               optional(each.has_factors ? factors : at::Tensor())};
          const c10::IValue expected = testing::run(*plain_function(source), arguments);
          const auto prepared = prepared_function(source);
          for (int run = 0; run < 3; ++run) {
            expect_alike(testing::run(*prepared, arguments).toTensor(), expected.toTensor(),
                         each.settings + ", " + std::to_string(columns) + " columns");
          }
        }
      }
    }
  }
}

TEST(EmbeddingBags, ReturnWhatElseIsUsed) {
  const at::NoGradGuard no_grad;
  const std::string source = source_of("False, 1, False, None, False, None", "y, size");
  const torch::jit::Stack arguments = {at::randn({5, 4}), at::tensor({1, 2, 4}, at::kLong), offsets_of({0, 1}, at::kLong),
                                       c10::IValue()};
  const c10::IValue expected = testing::run(*plain_function(source), arguments);
  const auto prepared = prepared_function(source);
  for (int run = 0; run < 3; ++run) {
    const c10::IValue got = testing::run(*prepared, arguments);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(at::equal(got.toTupleRef().elements()[i].toTensor(), expected.toTupleRef().elements()[i].toTensor()));
    }
  }
}

// The indices of each call are looked at: good ones before and after do not help.
TEST(EmbeddingBags, RejectWhatLibTorchRejects) {
  const at::NoGradGuard no_grad;
  const std::string source = source_of("False, 0, False, None, False, None");
  const auto prepared = prepared_function(source);
  const auto plain = plain_function(source);
  const at::Tensor table = at::randn({5, 16});
  const auto run_with = [&](const Plan& plan, const std::vector<int64_t>& indices, const std::vector<int64_t>& offsets) {
    return testing::run(plan, {table, at::tensor(indices, at::kLong), offsets_of(offsets, at::kLong), c10::IValue()});
  };
  const auto error_of = [&](const Plan& plan, const std::vector<int64_t>& indices, const std::vector<int64_t>& offsets) {
    try {
      run_with(plan, indices, offsets);
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  for (int run = 0; run < 3; ++run) {
    run_with(*prepared, {0, 1, 4}, {0, 2});
    for (const auto& [indices, offsets] : std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{
             {{0, 5, 1}, {0, 2}}, {{0, -1, 1}, {0, 2}}, {{0, 1, 2}, {1, 2}}}) {
      const std::string expected = error_of(*plain, indices, offsets);
      EXPECT_FALSE(expected.empty());
      EXPECT_NE(error_of(*prepared, indices, offsets).find(expected.substr(0, expected.find('\n'))), std::string::npos)
          << expected;
    }
  }
}

TEST(EmbeddingBags, HaveEveryKindOfVectors) {
  at::manual_seed(1);
  const at::Tensor table = at::randn({30, 77});
  const at::Tensor rows = at::randint(0, 30, {12}, at::kLong);
  const at::Tensor expected = table.index({rows}).sum(0) / 3;
  for (const int64_t lanes : {4, 8, 16}) {
    if (const BagSums* sums = bag_sums(lanes)) {
      const at::Tensor out = at::zeros({77});
      sums->of_int64({.table = table.const_data_ptr<float>(),
                      .columns = 77,
                      .rows = rows.const_data_ptr<int64_t>(),
                      .count = 12,
                      .divisor = 3,
                      .out = out.data_ptr<float>()});
      EXPECT_TRUE(at::allclose(out, expected, 1e-5, 1e-5)) << lanes;
    }
  }
}

// The gradients of looked-up rows, in the order in which LibTorch adds them.
TEST(EmbeddingGradients, AreThoseOfLibTorch) {
  const at::NoGradGuard no_grad;
  at::manual_seed(2);
  for (const int threads : {1, 3}) {
    const testing::Threads guard(threads);
    for (const int64_t columns : {1, 3, 16, 64, 100}) {
      for (const at::ScalarType dtype : {at::kLong, at::kInt}) {
        const at::Tensor gradient = at::randn({20, 40, columns});
        gradient[1][2][0] = std::numeric_limits<float>::quiet_NaN();
        gradient[3].fill_(std::numeric_limits<float>::infinity());
        const at::Tensor indices = at::randint(0, 30, {20, 40}).to(dtype);
        // LibTorch's operator serves what scales, indices that are not contiguous, and rows in three distances.
        for (const std::string settings :
             {"gradient, indices, 200, -1, False", "gradient, indices, 200, 4, False", "gradient, indices, 200, 4, True",
              "gradient.transpose(0, 1), indices.t(), 30, 4, False",
              "gradient.transpose(0, 1), indices.t().contiguous(), 200, 4, False",
              "gradient.view(4, 5, 40, -1).permute(2, 0, 1, 3), indices.t().reshape(40, 4, 5), 200, 4, False",
              "gradient.view(4, 5, 40, -1).permute(1, 2, 0, 3), indices.view(4, 5, 40).permute(1, 2, 0).contiguous(), 200, "
              "4, False",
              "gradient[:, 1:2], indices[:, 1:2].contiguous(), 200, -1, False"}) {
          const std::string source =
              "def f(gradient: Tensor, indices: Tensor):\n    return torch.embedding_dense_backward(" + settings + ")\n";
          const at::Tensor expected = testing::run(*plain_function(source), {gradient, indices}).toTensor();
          const auto prepared = prepared_function(source);
          for (int run = 0; run < 3; ++run) {
            const at::Tensor got = testing::run(*prepared, {gradient, indices}).toTensor();
            expect_alike(got, expected, settings);
            EXPECT_TRUE(at::equal(got.nan_to_num(7.0), expected.nan_to_num(7.0))) << settings << ": other bits";
          }
        }
      }
    }
  }
}

TEST(EmbeddingGradients, OfBagsAreThoseOfLibTorch) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  struct Case {
    std::string forward;   // from scale_grad_by_freq on
    std::string backward;  // the same
    std::vector<int64_t> offsets;
    bool has_factors = false;
  };
  const std::vector<Case> cases = {
      {"False, 0", "False, 0, False, factors, -1", {0, 3, 3, 100, 250}},
      {"False, 0", "False, 0, False, factors, 4", {0, 3, 3, 100, 400}},
      {"False, 0, False, factors", "False, 0, False, factors, -1", {0, 1, 200}, true},
      {"False, 1", "False, 1, False, factors, -1", {0, 0, 17, 300}},
      {"False, 1, False, None, False, 5", "False, 1, False, factors, 5", {0, 0, 17, 300}},
      {"False, 1, False, None, True", "False, 1, False, factors, -1", {0, 0, 17, 300, 400}},
      {"True, 0", "True, 0, False, factors, -1", {0, 5, 30}},    // LibTorch's
      {"False, 2", "False, 2, False, factors, -1", {0, 5, 30}},  // LibTorch's
  };
  for (const int threads : {1, 3}) {
    const testing::Threads guard(threads);
    for (const int64_t columns : {1, 16, 100}) {
      const at::Tensor table = at::randn({50, columns});
      for (const at::ScalarType dtype : {at::kLong, at::kInt}) {
        const at::Tensor indices = at::randint(0, 50, {400}).to(dtype);
        const at::Tensor factors = at::randn({400});
        for (const Case& each : cases) {
          const std::string source =
              "def f(table: Tensor, indices: Tensor, offsets: Tensor, factors: Optional[Tensor], gradient: Tensor):\n"
              "    y, bag, size, largest = torch._embedding_bag(table, indices, offsets, " +
              each.forward +
              ")\n"
              "    return torch._embedding_bag_backward(torch.stack([y, y * gradient], 1)[:, 1], indices, offsets, bag, "
              "size, largest, 50, " +
              each.backward + ")\n";
          const torch::jit::Stack arguments = {table, indices, offsets_of(each.offsets, dtype),
                                               optional(each.has_factors ? factors : at::Tensor()), at::randn({columns})};
          const at::Tensor expected = testing::run(*plain_function(source), arguments).toTensor();
          const auto prepared = prepared_function(source);
          for (int run = 0; run < 3; ++run) {
            expect_alike(testing::run(*prepared, arguments).toTensor(), expected, each.backward);
          }
        }
      }
    }
  }
}

TEST(EmbeddingGradients, HaveEveryKindOfVectors) {
  at::manual_seed(4);
  const at::Tensor from = at::randn({12, 77});
  const at::Tensor rows = at::randint(0, 30, {12}, at::kInt);
  const at::Tensor factors = at::randn({12});
  const at::Tensor expected = at::zeros({30, 77}).index_add(0, rows, from * factors.unsqueeze(1) * 2);
  expected.narrow(0, 0, 3).zero_();
  expected.narrow(0, 20, 10).zero_();
  expected[5].zero_();
  for (const int64_t lanes : {4, 8, 16}) {
    if (const BagSums* sums = bag_sums(lanes)) {
      const at::Tensor table = at::zeros({30, 77});
      sums->add_int32({.from = from.const_data_ptr<float>(),
                       .distance = 77,
                       .columns = 77,
                       .rows = rows.const_data_ptr<int32_t>(),
                       .count = 12,
                       .factors = factors.const_data_ptr<float>(),
                       .factor = 2,
                       .skipped = 5,
                       .first = 3,
                       .last = 20,
                       .table = table.data_ptr<float>()});
      EXPECT_TRUE(at::allclose(table, expected, 1e-5, 1e-5)) << lanes;
    }
  }
}

}  // namespace
}  // namespace sconce
