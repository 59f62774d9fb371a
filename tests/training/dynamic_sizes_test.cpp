// sconce::CompiledBackward with sizes that change: the second size is recorded with symbols, and later ones run its plan.
#include <sconce/compiled_backward.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/api/include/torch/nn/functional.h>
#include <torch/csrc/api/include/torch/types.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace sconce {
namespace {

namespace F = torch::nn::functional;
using Tensors = std::vector<at::Tensor>;

at::Tensor parameter(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

// x: Float[batch, 6]; the rest does not change.
struct BatchModel {
  at::Tensor w1 = parameter({8, 6});
  at::Tensor b1 = parameter({8});
  at::Tensor w2 = parameter({3, 8});
  at::Tensor square = parameter({6, 6});
  at::Tensor filters = parameter({4, 1, 3});
  at::Tensor images = parameter({2, 1, 3, 3});
  at::Tensor table = parameter({5, 6});
  at::Tensor scale = parameter({6});

  Tensors leaves() const { return {w1, b1, w2, square, filters, images, table, scale}; }
};

using BatchLoss = std::function<at::Tensor(const BatchModel&, const at::Tensor&)>;

// Doubles its operand.
struct Doubling : torch::autograd::Function<Doubling> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) { return x * 2; }
  static Tensors backward(torch::autograd::AutogradContext* /*context*/, const Tensors& gradients) {
    return {gradients[0] * 2};
  }
};

at::Tensor hidden_of(const BatchModel& m, const at::Tensor& x) { return at::relu(at::linear(x, m.w1, m.b1)); }

const std::vector<std::pair<std::string, BatchLoss>>& losses() {
  // clang-format off
  static const std::vector<std::pair<std::string, BatchLoss>> all = {
      {"mlp", [](const BatchModel& m, const at::Tensor& x) { return F::mse_loss(at::linear(hidden_of(m, x), m.w2), x.narrow(1, 0, 3)); }},
      {"cross_entropy", [](const BatchModel& m, const at::Tensor& x) { return F::cross_entropy(at::linear(hidden_of(m, x), m.w2), x.narrow(1, 0, 3).argmax(1)); }},
      {"nll", [](const BatchModel& m, const at::Tensor& x) { return at::nll_loss(at::log_softmax(at::linear(hidden_of(m, x), m.w2), 1), x.narrow(1, 0, 3).argmax(1)); }},
      {"l1", [](const BatchModel& m, const at::Tensor& x) { return at::l1_loss(at::matmul(x, m.square), x); }},
      {"smooth_l1", [](const BatchModel& m, const at::Tensor& x) { return at::smooth_l1_loss(at::matmul(x, m.square), x); }},
      {"huber", [](const BatchModel& m, const at::Tensor& x) { return at::huber_loss(at::matmul(x, m.square), x); }},
      {"bce", [](const BatchModel& m, const at::Tensor& x) { return at::binary_cross_entropy_with_logits(at::matmul(x, m.square), x.sigmoid()); }},
      {"kl", [](const BatchModel& m, const at::Tensor& x) { return at::kl_div(at::log_softmax(at::matmul(x, m.square), 1), x.softmax(1)); }},
      {"hinge", [](const BatchModel& m, const at::Tensor& x) { return at::clamp_min(1 - at::matmul(x, m.square) * x.sign(), 0).mean(); }},
      {"sum", [](const BatchModel& m, const at::Tensor& x) { return (x * m.scale).sum(); }},
      {"mean", [](const BatchModel& m, const at::Tensor& x) { return (x * m.scale).mean(); }},
      {"mean_of_rows", [](const BatchModel& m, const at::Tensor& x) { return (x * m.scale).mean(0).pow(2).sum(); }},
      {"variance", [](const BatchModel& m, const at::Tensor& x) { return (x * m.scale).var(0).sum() + (x * m.scale).std(1).mean(); }},
      {"softmax", [](const BatchModel& m, const at::Tensor& x) { return (at::matmul(x, m.square).softmax(1) * x).sum(); }},
      {"softmax_of_batch", [](const BatchModel& m, const at::Tensor& x) { return (at::matmul(x, m.square).softmax(0) * x).sum(); }},
      {"logsumexp", [](const BatchModel& m, const at::Tensor& x) { return at::matmul(x, m.square).logsumexp(1).mean(); }},
      {"amax", [](const BatchModel& m, const at::Tensor& x) { return at::matmul(x, m.square).amax({1}).sum(); }},
      {"norm", [](const BatchModel& m, const at::Tensor& x) { return at::matmul(x, m.square).norm() + (x * m.scale).norm(2, 1).sum(); }},
      {"layer_norm", [](const BatchModel& m, const at::Tensor& x) { return (at::layer_norm(x, {6}, m.scale) * x).sum(); }},
      {"batch_norm", [](const BatchModel& m, const at::Tensor& x) { return at::batch_norm(at::matmul(x, m.square), m.scale, {}, at::zeros({6}), at::ones({6}), true, 0.1, 1e-5, false).pow(3).sum(); }},
      {"gelu", [](const BatchModel& m, const at::Tensor& x) { return at::gelu(at::matmul(x, m.square)).sum(); }},
      {"silu_tanh", [](const BatchModel& m, const at::Tensor& x) { return (at::silu(at::matmul(x, m.square)) * at::tanh(x * m.scale)).mean(); }},
      {"leaky_elu", [](const BatchModel& m, const at::Tensor& x) { return (at::leaky_relu(at::matmul(x, m.square), 0.1) + at::elu(x * m.scale)).sum(); }},
      {"where_clamp", [](const BatchModel& m, const at::Tensor& x) { const at::Tensor y = at::matmul(x, m.square); return at::where(y > 0, y, y * 0.1).clamp(-1, 1).sum(); }},
      {"views", [](const BatchModel& m, const at::Tensor& x) { return (at::matmul(x, m.square).view({-1, 2, 3}).transpose(1, 2) * 2).select(2, 1).pow(2).mean(); }},
      {"flatten", [](const BatchModel& m, const at::Tensor& x) { return (at::matmul(x, m.square).flatten() * x.flatten()).sum(); }},
      {"permuted_reshape", [](const BatchModel& m, const at::Tensor& x) { return at::matmul(x, m.square).t().reshape({3, -1}).pow(2).sum(1).mean(); }},
      {"split_cat", [](const BatchModel& m, const at::Tensor& x) { return at::cat(at::matmul(x, m.square).split(2, 1), 0).pow(2).sum(); }},
      {"stack", [](const BatchModel& m, const at::Tensor& x) { const at::Tensor y = x * m.scale; return at::stack({y, y.sin()}).pow(2).mean(); }},
      {"chunk", [](const BatchModel& m, const at::Tensor& x) { const Tensors y = at::matmul(x, m.square).chunk(3, 1); return (y[0] * y[1].sigmoid() + y[2]).sum(); }},
      {"slice_of_batch", [](const BatchModel& m, const at::Tensor& x) { const at::Tensor y = at::matmul(x, m.square); return (y.slice(0, 1) - y.slice(0, 0, -1)).pow(2).sum(); }},
      {"broadcast", [](const BatchModel& m, const at::Tensor& x) { const at::Tensor y = x * m.scale; return (y * y.select(1, 0).unsqueeze(1) + m.b1.sum()).mean(); }},
      {"expand", [](const BatchModel& m, const at::Tensor& x) { return (m.scale.expand_as(x) * x + m.scale.unsqueeze(0).repeat({x.size(0), 1})).pow(2).sum(); }},
      {"index_select", [](const BatchModel& m, const at::Tensor& x) { return (at::matmul(x, m.square).index_select(1, at::tensor({0, 2, 0}))).pow(2).sum(); }},
      {"embedding", [](const BatchModel& m, const at::Tensor& x) { return (at::embedding(m.table, x.argmax(1).remainder(5)) * x).sum(); }},
      {"gather", [](const BatchModel& m, const at::Tensor& x) { return at::gather(at::matmul(x, m.square), 1, x.argmax(1, true)).mean(); }},
      {"similarity", [](const BatchModel& m, const at::Tensor& x) { const at::Tensor y = at::matmul(x, m.square); return (y.mm(y.t()) / 3).softmax(1).diagonal().log().mean(); }},
      {"conv1d", [](const BatchModel& m, const at::Tensor& x) { return at::conv1d(x.unsqueeze(1), m.filters, {}, 1, 1).pow(2).mean(); }},
      {"conv2d_pool", [](const BatchModel& m, const at::Tensor& x) { return at::max_pool2d(at::relu(at::conv2d(x.view({-1, 1, 2, 3}), m.images, {}, 1, 1)), {2, 1}).sum(); }},
      {"average_pool", [](const BatchModel& m, const at::Tensor& x) { return at::adaptive_avg_pool2d(at::conv2d(x.view({-1, 1, 2, 3}), m.images, {}, 1, 1), {1, 1}).pow(2).sum(); }},
      {"attention", [](const BatchModel& m, const at::Tensor& x) { const at::Tensor y = at::matmul(x, m.square).view({1, 2, -1, 3}); return at::scaled_dot_product_attention(y, y, y).pow(2).sum(); }},
      {"recurrent", [](const BatchModel& m, const at::Tensor& x) { at::Tensor h = x * 0; for (int i = 0; i < 3; ++i) { h = at::tanh(at::matmul(h, m.square) + x * m.scale); } return h.pow(2).mean(); }},
      {"written_view", [](const BatchModel& m, const at::Tensor& x) { at::Tensor own = at::matmul(x, m.square); own.select(1, 1).mul_(x.select(1, 0)); own.narrow(1, 0, 2).add_(1).exp_(); return own.pow(2).sum(); }},
      {"masked", [](const BatchModel& m, const at::Tensor& x) { return at::matmul(x, m.square).masked_fill(x > 0.5, 0.0).sum(); }},
      {"cumulative", [](const BatchModel& m, const at::Tensor& x) { return at::matmul(x, m.square).cumsum(0).pow(2).mean(); }},
      {"double", [](const BatchModel& m, const at::Tensor& x) { return (at::matmul(x, m.square).to(at::kDouble) / 3).sum().to(at::kFloat) * m.scale.mean(); }},
      {"tied", [](const BatchModel& m, const at::Tensor& x) { return at::matmul(at::tanh(at::matmul(x, m.square)), m.square.t()).pow(2).mean(); }},
      {"function", [](const BatchModel& m, const at::Tensor& x) { return Doubling::apply(at::matmul(x, m.square)).sin().sum(); }},
      {"hook", [](const BatchModel& m, const at::Tensor& x) { at::Tensor y = at::matmul(x, m.square).sin(); y.register_hook([](const at::Tensor& gradient) { return gradient * 3; }); return y.pow(2).sum(); }},
  };
  // clang-format on
  return all;
}

Tensors batch_gradients(const BatchLoss& loss, const BatchModel& model, const at::Tensor& x) {
  return torch::autograd::grad(
      {loss(model, x)},
      [&] {
        Tensors wanted = model.leaves();
        wanted.push_back(x);
        return wanted;
      }(),
      {}, {}, /*create_graph=*/false, /*allow_unused=*/true);
}

class DynamicSizes : public ::testing::TestWithParam<size_t> {};

TEST_P(DynamicSizes, NeedAtMostTwoTraces) {
  const auto& [name, loss] = losses()[GetParam()];
  at::manual_seed(1);
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  const CompiledBackward scope(cache);
  const BatchModel model;
  for (const int64_t batch : {6, 6, 10, 12, 3}) {
    const at::Tensor x = parameter({batch, 6});
    Tensors expected;
    {
      const EagerBackward eager;
      expected = batch_gradients(loss, model, x);
    }
    const Tensors found = batch_gradients(loss, model, x);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].defined(), expected[i].defined()) << name << ", batch " << batch << ", gradient " << i;
      if (found[i].defined()) {
        EXPECT_EQ(found[i].sizes(), expected[i].sizes()) << name << ", batch " << batch << ", gradient " << i;
        EXPECT_EQ(found[i].strides(), expected[i].strides()) << name << ", batch " << batch << ", gradient " << i;
        // Sums of large terms that nearly cancel are off by what the terms are rounded by.
        const double largest = expected[i].numel() > 0 ? expected[i].abs().max().item<double>() : 0;
        EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-4, 1e-5 * std::max(1.0, largest)))
            << name << ", batch " << batch << ", gradient " << i;
      }
    }
  }
  const BackwardExplanation explanation = scope.explain();
  EXPECT_EQ(explanation.recorded, 2U);
  EXPECT_EQ(explanation.by_plan, 3U);
  for (const std::string& why : explanation.why_sizes_are_fixed) {
    ADD_FAILURE() << why;
  }
  for (const auto& [reason, times] : explanation.reasons) {
    ADD_FAILURE() << reason << ", " << times << " times";
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, DynamicSizes, ::testing::Range(size_t{0}, losses().size()),
                         [](const ::testing::TestParamInfo<size_t>& each) { return losses()[each.param].first; });

// A formula fills the gradients of parts that have none. How many parts there were is part of the key.
TEST(DynamicSizes, HaveAPlanForEachNumberOfParts) {
  using Cut = std::function<at::Tensor(const at::Tensor&)>;
  const std::vector<Cut> cuts = {
      [](const at::Tensor& x) { return x.split(2)[0]; }, [](const at::Tensor& x) { return x.chunk(3).back(); },
      [](const at::Tensor& x) { return x.unbind()[1]; }, [](const at::Tensor& x) { return x.tensor_split(2)[1]; },
      [](const at::Tensor& x) { return x.split_with_sizes({1, x.size(0) - 1})[1]; }};
  for (size_t i = 0; i < cuts.size(); ++i) {
    const BackwardCache cache(Options().compile(CompileMode::kBlocking));
    for (const int64_t rows : {8, 5, 2, 6, 7, 3, 5, 8, 2}) {
      const at::Tensor x = parameter({rows, 3});
      const at::Tensor y = cuts[i](x.sin()).pow(2).sum();
      const at::Tensor expected = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true)[0];
      const CompiledBackward scope(cache);
      y.backward();
      EXPECT_TRUE(at::allclose(x.grad(), expected)) << "cut " << i << " of " << rows << " rows";
    }
  }
}

// A number that the program computes of a size is part of a node: each has a trace of its own.
TEST(DynamicSizes, StayApartWhereNumbersDiffer) {
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  const CompiledBackward scope(cache);
  for (const int64_t batch : {6, 6, 10, 10, 12, 12, 10, 6}) {
    const at::Tensor x = parameter({batch, 6});
    (x.sin() / static_cast<double>(batch)).sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), x.cos() / static_cast<double>(batch)));
  }
  EXPECT_EQ(scope.explain().recorded, 3U);
  EXPECT_EQ(scope.explain().by_plan, 3U);
}

// Sizes of 0 and 1 mean something else, and have traces of their own.
TEST(DynamicSizes, OfNothingAndOneAreApart) {
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  const CompiledBackward scope(cache);
  const at::Tensor w = parameter({6, 3});
  for (const int64_t batch : {6, 10, 1, 0, 1, 0, 7, 1, 0}) {
    const at::Tensor x = at::randn({batch, 6});
    const at::Tensor y = at::randn({batch, 1});
    const auto loss = [&] { return (x.mm(w) * y + x.mm(w).sum(0)).pow(2).sum(); };
    const at::Tensor found = torch::autograd::grad({loss()}, {w})[0];
    const EagerBackward eager;
    EXPECT_TRUE(at::allclose(found, torch::autograd::grad({loss()}, {w})[0], 1e-4, 1e-5)) << "batch " << batch;
  }
  EXPECT_EQ(scope.explain().by_plan, 3U);  // 7, and the last two
}

// Two sizes change, at times by turns.
TEST(DynamicSizes, OfSeveralDims) {
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  const CompiledBackward scope(cache);
  const at::Tensor w = parameter({4, 4});
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{2, 5}, {3, 5}, {3, 7}, {2, 5}, {6, 9}, {7, 7}, {9, 6}, {5, 5}};
  for (const auto& [batch, length] : sizes) {
    const at::Tensor x = at::randn({batch, length, 4});
    const auto loss = [&] {
      const at::Tensor y = x.matmul(w);
      return (y.matmul(y.transpose(1, 2)).softmax(2).matmul(x)).mean(1).pow(2).sum();
    };
    const at::Tensor found = torch::autograd::grad({loss()}, {w})[0];
    const EagerBackward eager;
    EXPECT_TRUE(at::allclose(found, torch::autograd::grad({loss()}, {w})[0], 1e-4, 1e-5)) << batch << " x " << length;
  }
  EXPECT_EQ(scope.explain().recorded, 3U);
  EXPECT_EQ(scope.explain().by_plan, 5U);
}

}  // namespace
}  // namespace sconce
