// Attention and its gradients by sconce's kernels, beside LibTorch's.
#include "tests/support/graphs.h"
#include "tests/support/threads.h"

#include "kernels/loops/softmax_rows.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce {
namespace {

constexpr float kUnbounded = std::numeric_limits<float>::infinity();

std::vector<const SoftmaxRows*> all_loops() {
  std::vector<const SoftmaxRows*> found;
  for (const int64_t lanes : {4, 8, 16}) {
    if (const SoftmaxRows* loops = softmax_rows(lanes)) {
      found.push_back(loops);
    }
  }
  return found;
}

TEST(SoftmaxRows, ComputeExponentsOfAllSizes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  for (const SoftmaxRows* loops : all_loops()) {
    for (const int64_t count : {1, 3, 4, 7, 16, 17, 33, 100}) {
      const at::Tensor scores = at::randn({count}) * 30;
      const at::Tensor row = scores.clone();
      const SoftmaxRows::Sum sum = loops->exponentiate(row.mutable_data_ptr<float>(), count);
      const at::Tensor expected = at::exp((scores - scores.max()).to(at::kDouble)).to(at::kFloat);
      EXPECT_EQ(sum.most, scores.max().item<float>());
      EXPECT_TRUE(at::allclose(row, expected, 1e-6, 1e-37)) << loops->lanes << " lanes, " << count;
      EXPECT_NEAR(sum.sum, expected.sum().item<float>(), 1e-5F * static_cast<float>(count));
    }
  }
}

TEST(SoftmaxRows, TreatSpecialScoresAsLibTorchDoes) {
  for (const SoftmaxRows* loops : all_loops()) {
    for (const size_t count : {5, 40}) {
      std::vector<float> masked(count, -kUnbounded);
      EXPECT_EQ(loops->exponentiate(masked.data(), static_cast<int64_t>(count)).sum, 0);
      EXPECT_EQ(masked, std::vector<float>(count, 0.0F));
      std::vector<float> some(count, -kUnbounded);
      some[3] = 2;
      EXPECT_EQ(loops->exponentiate(some.data(), static_cast<int64_t>(count)).sum, 1);
      EXPECT_EQ(some[2], 0);
      EXPECT_EQ(some[3], 1);
      std::vector<float> invalid(count, 1);
      invalid[count - 1] = std::nanf("");
      EXPECT_TRUE(std::isnan(loops->exponentiate(invalid.data(), static_cast<int64_t>(count)).sum)) << loops->lanes;
    }
  }
}

TEST(SoftmaxRows, ComputeGradients) {
  const at::NoGradGuard no_grad;
  at::manual_seed(2);
  for (const SoftmaxRows* loops : all_loops()) {
    for (const int64_t count : {1, 5, 16, 37}) {
      const at::Tensor scores = at::randn({count});
      const at::Tensor gradients = at::randn({count});
      const at::Tensor p = at::exp(scores - 2);
      const at::Tensor expected = p * (gradients - 0.5) * 0.25;
      loops->differentiate(scores.mutable_data_ptr<float>(), gradients.mutable_data_ptr<float>(), count, 2, 0.5, 0.25);
      EXPECT_TRUE(at::allclose(scores, p, 1e-6)) << loops->lanes;
      EXPECT_TRUE(at::allclose(gradients, expected, 1e-5, 1e-7)) << loops->lanes;
      EXPECT_NEAR(loops->dot(p.const_data_ptr<float>(), p.const_data_ptr<float>(), count), p.dot(p).item<float>(), 1e-4);
    }
  }
}

struct AttentionCase {
  at::Tensor query, key, value, mask;
  bool is_causal = false;
  std::optional<double> scale;
};

std::string constants_of(const AttentionCase& of) {
  return "  %p : float = prim::Constant[value=0.]()\n"
         "  %causal : bool = prim::Constant[value=" +
         std::string(of.is_causal ? "1" : "0") +
         "]()\n"
         "  %scale : float? = prim::Constant" +
         (of.scale ? "[value=" + std::to_string(*of.scale) + "]" : "") + "()\n";
}

std::vector<at::Tensor> run_attention(const std::string& graph, const torch::jit::Stack& arguments) {
  auto plan = lower(testing::graph_of(graph), nullptr, nullptr, LoweringOptions{.is_prepared = true});
  EXPECT_TRUE(plan) << plan.refusal().reason;
  std::vector<at::Tensor> results;
  for (int times = 0; times < 2; ++times) {
    torch::jit::Stack stack = arguments;
    run_plan(**plan, stack, AutogradUse::kNone);
    results.clear();
    for (const c10::IValue& value : stack) {
      results.push_back(value.toTensor());
    }
  }
  return results;
}

void expect_equal_attention(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs,
                            const AttentionCase& of) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-4, 1e-5))
        << "result " << i << " of queries " << of.query.sizes() << " " << of.query.strides() << ", keys " << of.key.sizes()
        << (of.mask.defined() ? ", with a mask" : "") << (of.is_causal ? ", causal" : "");
    EXPECT_EQ(ours[i].strides(), theirs[i].strides()) << "result " << i << " of " << of.query.sizes();
  }
}

void check_attention(const AttentionCase& of) {
  const c10::IValue mask = of.mask.defined() ? c10::IValue(of.mask) : c10::IValue();
  const std::string forward = "graph(%q : Tensor, %k : Tensor, %v : Tensor, %mask : Tensor?):\n" + constants_of(of) +
                              "  %out : Tensor, %sums : Tensor = "
                              "aten::_scaled_dot_product_flash_attention_for_cpu(%q, %k, %v, %p, %causal, %mask, %scale)\n"
                              "  return (%out, %sums)\n";
  const std::optional<at::Tensor> given = of.mask.defined() ? std::optional(of.mask) : std::nullopt;
  const auto [out, sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(of.query, of.key, of.value, 0, of.is_causal, given, of.scale);
  expect_equal_attention(run_attention(forward, {of.query, of.key, of.value, mask}), {out, sums}, of);
  const std::string backward =
      "graph(%grad : Tensor, %q : Tensor, %k : Tensor, %v : Tensor, %out : Tensor, %sums : Tensor, %mask : Tensor?):\n" +
      constants_of(of) +
      "  %of_q : Tensor, %of_k : Tensor, %of_v : Tensor = aten::_scaled_dot_product_flash_attention_for_cpu_backward(%grad, "
      "%q, %k, %v, %out, %sums, %p, %causal, %mask, %scale)\n"
      "  return (%of_q, %of_k, %of_v)\n";
  const at::Tensor grad = at::randn(out.sizes());
  const auto [of_q, of_k, of_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, of.query, of.key, of.value, out, sums, 0, of.is_causal, given, of.scale);
  expect_equal_attention(run_attention(backward, {grad, of.query, of.key, of.value, out, sums, mask}), {of_q, of_k, of_v},
                         of);
}

TEST(Attention, ComputesWhatLibTorchComputes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  for (const int count : {1, 2}) {
    const testing::Threads scope(count);
    for (const auto& [batches, heads, queries, keys, features] : std::vector<std::array<int64_t, 5>>{
             {2, 3, 5, 5, 8}, {1, 2, 48, 48, 32}, {1, 1, 1, 7, 16}, {2, 1, 250, 600, 16}, {1, 2, 70, 9, 5}}) {
      const AttentionCase plain{at::randn({batches, heads, queries, features}), at::randn({batches, heads, keys, features}),
                                at::randn({batches, heads, keys, features})};
      check_attention(plain);
      AttentionCase causal = plain;
      causal.is_causal = true;
      check_attention(causal);
      AttentionCase scaled = plain;
      scaled.scale = 0.25;
      scaled.mask = at::randn({queries, keys});
      check_attention(scaled);
      AttentionCase masked = plain;
      masked.mask =
          at::zeros({batches, 1, queries, keys}).masked_fill(at::rand({batches, 1, queries, keys}) < 0.4, -kUnbounded);
      masked.mask[0][0][0].fill_(-kUnbounded);
      check_attention(masked);
      masked.mask = at::randn({batches, 1, 1, keys});
      check_attention(masked);
      // As layers split one product into queries, keys and values.
      const auto joined = at::randn({batches, std::max(queries, keys), 3, heads, features}).unbind(2);
      check_attention({joined[0].narrow(1, 0, queries).transpose(1, 2), joined[1].narrow(1, 0, keys).transpose(1, 2),
                       joined[2].narrow(1, 0, keys).transpose(1, 2)});
    }
  }
}

}  // namespace
}  // namespace sconce
