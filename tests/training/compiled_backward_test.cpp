// sconce::CompiledBackward: gradients are those of LibTorch's engine, in the call that records and in those of the plan.
#include <sconce/compiled_backward.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/api/include/torch/nn/functional.h>
#include <torch/csrc/api/include/torch/types.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include <functional>
#include <thread>

namespace sconce {
namespace {

namespace F = torch::nn::functional;
using Tensors = std::vector<at::Tensor>;
using Loss = std::function<at::Tensor(const Tensors&)>;

Options blocking() { return Options().compile(CompileMode::kBlocking); }
at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

Tensors copies_of(const Tensors& leaves) {
  Tensors copies;
  for (const at::Tensor& each : leaves) {
    copies.push_back(each.detach().clone().set_requires_grad(each.requires_grad()));
  }
  return copies;
}

Tensors gradients_of(const Loss& loss, const Tensors& leaves) {
  const Tensors own = copies_of(leaves);
  loss(own).backward();
  Tensors gradients;
  for (const at::Tensor& each : own) {
    gradients.push_back(each.grad());
  }
  return gradients;
}

void expect_same(const Tensors& found, const Tensors& expected, const std::string& when) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << when << ", gradient " << i;
    if (found[i].defined()) {
      EXPECT_EQ(found[i].strides(), expected[i].strides()) << when << ", gradient " << i;
      EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-4, 1e-5)) << when << ", gradient " << i;
    }
  }
}

// `by_plan`: whether backwards after the first run by plan.
void expect_compiled(const std::string& name, const Loss& loss, const Tensors& leaves, bool by_plan = true) {
  const BackwardCache cache(blocking());
  const CompiledBackward scope(cache);
  for (int call = 0; call < 3; ++call) {
    at::manual_seed(call);
    Tensors expected;
    {
      const EagerBackward eager;
      expected = gradients_of(loss, leaves);
    }
    at::manual_seed(call);
    expect_same(gradients_of(loss, leaves), expected, name + ", call " + std::to_string(call));
  }
  const BackwardExplanation explanation = scope.explain();
  EXPECT_EQ(explanation.by_plan, by_plan ? 2U : 0U) << name;
  for (const auto& [reason, times] : explanation.reasons) {
    EXPECT_FALSE(by_plan) << name << ": " << reason;
  }
}

TEST(CompiledBackward, ComputesGradientsOfLosses) {
  const std::vector<std::pair<std::string, Loss>> losses = {
      {"mlp",
       [](const Tensors& in) { return F::mse_loss(at::linear(at::relu(at::linear(in[0], in[1], in[2])), in[3]), in[4]); }},
      {"cross_entropy",
       [](const Tensors& in) { return F::cross_entropy(at::linear(in[0], in[1], in[2]), in[4].argmax(1)); }},
      {"tied", [](const Tensors& in) { return at::tanh(in[0].mm(in[0].t())).mm(in[0]).sum(); }},
      {"views", [](const Tensors& in) { return (in[0].view({2, 2, 6}).transpose(0, 1).select(1, 0) * 2).pow(2).mean(); }},
      {"reductions",
       [](const Tensors& in) { return in[0].std(1).sum() + in[0].softmax(0).amax({1}).sum() + in[0].logsumexp(1).mean(); }},
      {"lists",
       [](const Tensors& in) { return at::cat(in[0].split(2, 1), 0).pow(2).sum() + at::stack({in[0], in[0]}).norm(); }},
      {"indices",
       [](const Tensors& in) {
         return in[0].index_select(0, at::tensor({0, 2, 0})).sum() *
                at::gather(in[0], 1, at::zeros({4, 1}, at::kLong)).mean();
       }},
      {"layer_norm", [](const Tensors& in) { return F::layer_norm(in[0], F::LayerNormFuncOptions({6})).sin().sum(); }},
      {"written_view",
       [](const Tensors& in) {
         at::Tensor own = in[0] * 1;
         own.select(0, 1).mul_(in[0].select(0, 0));
         own.narrow(1, 0, 2).add_(1).exp_();
         return own.pow(2).sum();
       }},
      {"batch_norm",
       [](const Tensors& in) {
         return F::batch_norm(in[0], at::zeros({6}), at::ones({6}), F::BatchNormFuncOptions().training(true)).pow(3).sum();
       }},
      {"dropout", [](const Tensors& in) { return F::dropout(in[0], F::DropoutFuncOptions().p(0.5)).sum(); }},
      {"conv", [](const Tensors& in) { return at::conv1d(in[0].unsqueeze(0), in[5]).pow(2).sum(); }},
      {"broadcast", [](const Tensors& in) { return (in[0] * in[0].select(1, 0).unsqueeze(1) + in[2].sum()).mean(); }},
      {"double", [](const Tensors& in) { return (in[0].to(at::kDouble) / 3).sum().to(at::kFloat) * in[0].mean(); }},
      {"where", [](const Tensors& in) { return at::where(in[0] > 0, in[0], in[0] * 0.1).clamp(-1, 1).sum(); }},
      {"attention",
       [](const Tensors& in) {
         return at::scaled_dot_product_attention(in[0].view({1, 1, 4, 6}), in[0].view({1, 1, 4, 6}),
                                                 in[0].view({1, 1, 4, 6}))
             .sum();
       }},
  };
  const Tensors leaves = {leaf({4, 6}), leaf({8, 6}), leaf({8}), leaf({3, 8}), at::randn({4, 3}), leaf({2, 4, 3})};
  for (const auto& [name, loss] : losses) {
    expect_compiled(name, loss, leaves);
  }
}

TEST(CompiledBackward, RecordsNoFormulaThatReadsElements) {
  const Tensors leaves = {leaf({4, 6})};
  expect_compiled("max", [](const Tensors& in) { return in[0].max(); }, leaves, /*by_plan=*/false);
  expect_compiled("prod", [](const Tensors& in) { return in[0].prod(); }, leaves, /*by_plan=*/false);
}

// What was refused in the middle has real tensors from there on, whose addresses may come again.
TEST(CompiledBackward, KeepsGradientsApartAfterARefusal) {
  const Tensors leaves = {leaf({4, 6}), leaf({6})};
  expect_compiled("max", [](const Tensors& in) { return in[0].max() + in[1].sum(); }, leaves, /*by_plan=*/false);
  expect_compiled(
      "prod",
      [](const Tensors& in) {
        const at::Tensor y = in[0] * 2;
        return (y.prod(0) + y.tanh().sum() + in[1].sum()).sum();
      },
      leaves, /*by_plan=*/false);
}

TEST(CompiledBackward, TakesPartsOfWhatANodeReturns) {
  const BackwardCache cache(blocking());
  const CompiledBackward scope(cache);
  for (const int64_t rows : {3, 3, 5, 7}) {
    const at::Tensor x = leaf({rows, 2});
    const at::Tensor w = leaf({4, 2});
    EXPECT_TRUE(at::allclose(torch::autograd::grad({at::cat({x, w}).exp().sum()}, {x})[0], x.exp()));
  }
  EXPECT_EQ(scope.explain().by_plan, 2U);
}

// Formulas that read memory of tensors, or take sizes as plain numbers alone, run between the graphs.
TEST(CompiledBackward, CallsFormulasThatCannotBeRecorded) {
  const BackwardCache cache(blocking());
  const CompiledBackward scope(cache);
  for (const int64_t rows : {5, 5, 7, 4}) {
    const at::Tensor x = leaf({rows, 3, 2});
    const at::Tensor lengths = at::tensor({rows, int64_t{3}, int64_t{2}});
    const auto packed = [&] { return std::get<0>(at::_pack_padded_sequence(x, lengths, false)).exp().sum(); };
    const auto spectrum = [&] { return at::real(at::fft_fft(x, std::nullopt, 0)).pow(2).sum(); };
    const auto grid = [&] {
      return at::affine_grid_generator(x.slice(0, 0, 2).transpose(1, 2), {2, 1, rows, 2}, false).pow(2).sum();
    };
    for (const std::function<at::Tensor()>& loss :
         {std::function<at::Tensor()>(packed), std::function<at::Tensor()>(spectrum), std::function<at::Tensor()>(grid)}) {
      const at::Tensor found = torch::autograd::grad({loss()}, {x})[0];
      const EagerBackward eager;
      EXPECT_TRUE(at::allclose(found, torch::autograd::grad({loss()}, {x})[0], 1e-4, 1e-5)) << rows << " rows";
    }
  }
}

TEST(CompiledBackward, AccumulatesLikeTheEngine) {
  const BackwardCache cache(blocking());
  const at::Tensor x = leaf({3, 4});
  const at::Tensor y = x.detach().clone().set_requires_grad(true);
  const auto loss = [](const at::Tensor& in) { return (in.t() * in.t()).sum(); };
  for (int call = 0; call < 3; ++call) {
    {
      const CompiledBackward scope(cache);
      loss(x).backward();
    }
    loss(y).backward();
    EXPECT_TRUE(at::allclose(x.grad(), y.grad()));
    EXPECT_EQ(x.grad().strides(), y.grad().strides());
  }
  EXPECT_EQ(cache.explain().by_plan, 2U);
}

TEST(CompiledBackward, CopiesAGradientThatTheCallerHolds) {
  const BackwardCache cache(blocking());
  const CompiledBackward scope(cache);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    const at::Tensor z = leaf({3});
    const at::Tensor given = at::ones({3});
    (x + z).backward(given);
    EXPECT_FALSE(x.grad().is_alias_of(given));
    EXPECT_FALSE(x.grad().is_alias_of(z.grad()));
    x.grad().fill_(7);
    EXPECT_TRUE(at::equal(z.grad(), at::ones({3})));
    EXPECT_TRUE(at::equal(given, at::ones({3})));
  }
}

TEST(CompiledBackward, ReturnsGradientsOfSubsets) {
  const BackwardCache cache(blocking());
  const CompiledBackward scope(cache);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = leaf({3});
    const at::Tensor w = leaf({3});
    const at::Tensor middle = (x * w).sin();
    const at::Tensor loss = (middle * w).sum();
    const Tensors some = torch::autograd::grad({loss}, {w, middle}, {}, /*retain_graph=*/true);
    EXPECT_TRUE(at::allclose(some[1], w));
    EXPECT_TRUE(at::allclose(some[0], middle + w * (x * w).cos() * x));
    EXPECT_FALSE(x.grad().defined());
    loss.backward({}, /*retain_graph=*/true, /*create_graph=*/false, Tensors{x});
    EXPECT_TRUE(at::allclose(x.grad(), w * w * (x * w).cos()));
    EXPECT_FALSE(w.grad().defined());
    loss.backward();
    EXPECT_TRUE(at::allclose(w.grad(), some[0]));
    EXPECT_THROW(loss.backward(), c10::Error);
    const at::Tensor unused = leaf({1});
    EXPECT_FALSE(torch::autograd::grad({(x * x).sum()}, {unused}, {}, {}, false, /*allow_unused=*/true)[0].defined());
  }
  EXPECT_EQ(scope.explain().by_engine, 3U);  // what came for the first time after the first
}

TEST(CompiledBackward, LeavesTheRestToTheEngine) {
  const BackwardCache cache(blocking());
  const CompiledBackward scope(cache);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    const at::Tensor first = torch::autograd::grad({x.pow(3).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    EXPECT_TRUE(at::allclose(torch::autograd::grad({first.sum()}, {x})[0], 6 * x));
  }
  EXPECT_EQ(scope.explain().by_engine, 3U);
  EXPECT_EQ(scope.explain().by_plan, 2U);
}

TEST(CompiledBackward, CallsHooksOfLeaves) {
  const BackwardCache cache(blocking());
  const CompiledBackward scope(cache);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    x.register_hook([](const at::Tensor& gradient) { return gradient * 10; });
    (x * 2).sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), at::full({3}, 20.0)));
  }
  EXPECT_EQ(scope.explain().by_plan, 2U);
}

TEST(CompiledBackward, RaisesWhatTheEngineRaises) {
  const BackwardCache cache(blocking());
  const auto message_of = [](bool is_compiled, const BackwardCache& plans) {
    const at::Tensor x = leaf({3});
    at::Tensor y = x.sigmoid();
    const at::Tensor loss = (y * y).sum();
    {
      const at::NoGradGuard no_grad;
      y.add_(1);
    }
    try {
      if (is_compiled) {
        const CompiledBackward scope(plans);
        loss.backward();
      } else {
        loss.backward();
      }
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string("no error");
  };
  const std::string expected = message_of(false, cache);
  EXPECT_NE(expected.find("modified by an inplace operation"), std::string::npos);
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(message_of(true, cache), expected);
  }
}

TEST(CompiledBackward, TellsKindsApart) {
  const BackwardCache cache(blocking());
  const CompiledBackward scope(cache);
  for (int round = 0; round < 2; ++round) {
    for (const int64_t batch : {6, 6, 10, 12, 3}) {
      const at::Tensor w = leaf({4, 2});
      const at::Tensor x = at::randn({batch, 4});
      x.mm(w).pow(2).mean().backward();
      EXPECT_TRUE(at::allclose(w.grad(), x.t().mm(x.mm(w)) * (2.0 / static_cast<double>(2 * batch)), 1e-4, 1e-5));
    }
  }
  EXPECT_EQ(scope.explain().recorded, 2U);  // one size, then all sizes
}

TEST(CompiledBackward, ServesThreadsAtOnce) {
  const BackwardCache cache(blocking());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&cache, &wrong, thread] {
      const CompiledBackward scope(cache);
      for (int call = 0; call < 10; ++call) {
        const at::Tensor x = at::full({1 + thread % 3, 4}, 2.0 + thread).set_requires_grad(true);
        (x * x * x).sum().backward();
        wrong += at::allclose(x.grad(), 3 * x * x) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace sconce
