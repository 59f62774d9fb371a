// sconce::trace: a plain C++ function on tensors, recorded once and replayed.
#include <sconce/trace.h>

#include "tests/support/autocast_region.h"
#include "tests/support/cuda_on_host.h"
#include "tests/training/same_calls.h"

#include "trace/trace_key.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/api/include/torch/nn/functional.h>
#include <torch/csrc/api/include/torch/types.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include <functional>
#include <optional>
#include <set>

namespace sconce::tests {
namespace {

void expect_planned(const TracedFunction& traced) {
  for (const TraceExplanation::Trace& each : traced.explain().traces) {
    EXPECT_EQ(each.refusal, "") << each.arguments;
    EXPECT_TRUE(each.plan.has_value()) << each.arguments;
  }
}

TEST(Trace, PlansAFunctionOfTensors) {
  const Function mlp = [](Tensors in) -> Tensors {
    const at::Tensor hidden = at::relu(at::linear(in[0], in[1], in[2]));
    return {at::log_softmax(at::linear(hidden, in[3]), 1), hidden};
  };
  const TracedFunction traced =
      expect_same(mlp, {{at::randn({4, 6}), leaf({8, 6}), leaf({8}), leaf({3, 8})},
                        {leaf({4, 6}), leaf({8, 6}), leaf({8}), leaf({3, 8})},
                        {at::randn({2, 6}), at::randn({8, 6}), at::randn({8}), at::randn({3, 8})}});
  expect_planned(traced);
  EXPECT_EQ(traced.explain().traces.size(), 3U);
}

TEST(Trace, RecordsLossesOfTheCppApi) {
  namespace F = torch::nn::functional;
  const std::vector<Function> losses = {
      [](Tensors in) -> Tensors { return {F::mse_loss(in[0], in[1])}; },
      [](Tensors in) -> Tensors { return {F::smooth_l1_loss(in[0], in[1])}; },
      [](Tensors in) -> Tensors { return {F::binary_cross_entropy_with_logits(in[0], in[1].sigmoid())}; },
      [](Tensors in) -> Tensors { return {F::kl_div(in[0].log_softmax(1), in[1].softmax(1))}; },
      [](Tensors in) -> Tensors { return {F::cross_entropy(in[0], in[1].argmax(1))}; },
      [](Tensors in) -> Tensors { return {F::pairwise_distance(in[0], in[1])}; },
      [](Tensors in) -> Tensors { return {F::layer_norm(in[0], F::LayerNormFuncOptions({5})) * in[1]}; },
  };
  for (const Function& loss : losses) {
    expect_planned(expect_same(loss, {{leaf({3, 5}), at::randn({3, 5})}, {leaf({3, 5}), leaf({3, 5})}}));
  }
}

TEST(Trace, KeepsNumbersAsNumbers) {
  const Function promoting = [](Tensors in) -> Tensors {
    return {
        in[0] * 2 + 1, in[0] / 3, 2 - in[0], in[0].pow(2), at::where(in[0] > 0, in[0], 0.5), in[0].to(at::kDouble) * 0.1};
  };
  expect_planned(expect_same(promoting, {{at::arange(6)}, {leaf({3})}, {at::randn({2}, at::kHalf)}}));
}

TEST(Trace, RecordsViewsAndWrites) {
  const Function writing = [](Tensors in) -> Tensors {
    at::Tensor own = in[0] * 1;
    own.select(0, 1).mul_(3);
    own.narrow(1, 0, 2).add_(in[1]);
    at::Tensor grown = at::zeros({2, 3});
    grown.copy_(own.t().slice(0, 0, 2));
    return {own, grown, own.t(), in[0].view({-1})};
  };
  expect_planned(expect_same(writing, {{at::randn({3, 4}), at::randn({2})}, {leaf({3, 4}), leaf({2})}}));
  const Function writes_argument = [](Tensors in) -> Tensors { return {in[0].add_(1).mul_(in[1])}; };
  expect_planned(expect_same(writes_argument, {{at::randn({3}), at::randn({3})}, {at::randn({3}), leaf({3})}}));
}

TEST(Trace, RecordsViewsInPlace) {
  const Function views = [](Tensors in) -> Tensors {
    at::Tensor product = in[0].mm(in[0]);
    const at::Tensor rows = product.select(0, 1);
    product.transpose_(0, 1);
    product.mul_(in[0]);
    at::Tensor wide = product * 2;
    return {product.t_().contiguous(), wide.unsqueeze_(0).squeeze_(0).select(1, 0), rows, wide};
  };
  expect_planned(expect_same(views, {{at::randn({3, 3})}, {at::randn({3, 3})}}));
}

// Such a view is one of a leaf that requires a gradient, and autograd makes no history for it.
TEST(Trace, HandsOutViewsThatAreMadeWithoutGradients) {
  const c10::NoGradGuard no_grad;
  const std::vector<Function> functions = {
      [](Tensors in) -> Tensors { return {in[0].select(0, 0)}; },
      [](Tensors in) -> Tensors { return {in[0].select(0, 0).detach()}; },
      [](Tensors in) -> Tensors { return {in[0].select(0, 0).fill_(2)}; },
      [](Tensors in) -> Tensors {
        const Tensors parts = in[0].unbind(0);
        in[0].mul_(2);
        return {parts[1], parts[0].view({2, -1}).mul_(3), in[0].detach()};
      },
  };
  for (const Function& function : functions) {
    expect_planned(expect_same(function, {{leaf({3, 4})}, {at::randn({3, 4})}}));
  }
}

TEST(Trace, RecordsListsAndOptionalTensors) {
  const Function lists = [](Tensors in) -> Tensors {
    const Tensors parts = in[0].split(2, 1);
    const at::Tensor joined = at::cat({parts[1], parts[0], at::stack({in[1], in[1]}, 1)}, 1);
    return {joined, at::index(joined, {std::nullopt, at::tensor({0, 2})}), parts[0], at::tensor({1.5, 2.5})};
  };
  expect_planned(expect_same(lists, {{at::randn({3, 4}), at::randn({3})}, {leaf({3, 4}), leaf({3})}}));
}

TEST(Trace, DrawsRandomNumbersLikeTheFunction) {
  const Function noisy = [](Tensors in) -> Tensors {
    return {at::dropout(in[0], 0.5, true), at::rand({3}), in[0] + at::randn_like(in[0])};
  };
  expect_planned(expect_same(noisy, {{at::randn({3, 4})}, {leaf({3, 4})}}));
}

TEST(Trace, ReadsTensorsOfTheClosureInEachCall) {
  const at::Tensor weight = leaf({3, 3});
  const TracedFunction traced =
      trace([weight](Tensors in) -> Tensors { return {in[0].mm(weight)}; }, Options().compile(CompileMode::kBlocking));
  const at::Tensor x = at::randn({2, 3});
  for (int call = 0; call < 3; ++call) {
    weight.mutable_grad() = at::Tensor();
    const at::Tensor y = traced({x}).front();
    EXPECT_TRUE(at::allclose(y, x.mm(weight)));
    y.sum().backward();
    EXPECT_TRUE(at::allclose(weight.grad(), x.t().mm(at::ones({2, 3}))));
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
}

// A detached argument is no view of it: a write records no history for the argument.
TEST(Trace, HandsOutDetachedArguments) {
  const TracedFunction traced =
      trace([](Tensors in) -> Tensors { return {in[0].exp(), in[0].detach()}; }, Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = at::ones({3 + call});
    const at::Tensor detached = traced({x})[1];
    EXPECT_FALSE(detached.is_view()) << "call " << call;
    detached.mul_(leaf({3 + call}));
    EXPECT_FALSE(x.requires_grad()) << "call " << call;
    const at::Tensor same = at::ones({3 + call});
    same.detach().mul_(leaf({3 + call}));
    EXPECT_EQ(x._version(), same._version()) << "call " << call;
    EXPECT_TRUE(x.is_alias_of(detached)) << "call " << call;
  }
}

TEST(Trace, LeavesSizesOpenThatChange) {
  const Function loss = [](Tensors in) -> Tensors {
    const at::Tensor y = at::relu(at::linear(in[0], in[1]));
    const at::Tensor shifted = y.slice(0, 1) - y.slice(0, 0, -1);
    return {at::log_softmax(y, 1).mean() + shifted.pow(2).sum(), y.t()};
  };
  std::vector<Tensors> calls;
  for (const int64_t rows : {4, 6, 9, 4, 31, 2, 1, 1, 7}) {
    calls.push_back({leaf({rows, 6}), leaf({8, 6})});
  }
  const TracedFunction traced = expect_same(loss, calls);
  expect_planned(traced);
  EXPECT_EQ(traced.explain().traces.size(), 3U) << "a size, symbols, and one row";
  EXPECT_TRUE(traced.explain().why_sizes_are_fixed.empty());
}

// C++ code that reads a size as a plain number goes on with this number.
TEST(Trace, FixesSizesThatAreReadAsNumbers) {
  const Function scaled = [](Tensors in) -> Tensors { return {in[0] / in[0].size(0)}; };
  const TracedFunction traced = expect_same(scaled, {{leaf({4, 6})}, {leaf({6, 6})}, {leaf({9, 6})}});
  EXPECT_THAT(traced.explain().why_sizes_are_fixed, ::testing::ElementsAre(::testing::HasSubstr("plain number")));
}

TEST(Trace, RunsAgainWhatRaisesWithSymbolicSizes) {
  const Function raising = [](Tensors in) -> Tensors {
    in[1].add_(1);
    TORCH_CHECK(!in[0].sym_size(0).is_heap_allocated(), "a symbol");
    return {in[0] * in[1] + at::rand({6})};
  };
  const TracedFunction traced =
      expect_same(raising, {{leaf({4, 6}), at::zeros({6})}, {leaf({6, 6}), at::zeros({6})}, {leaf({9, 6}), at::zeros({6})}});
  EXPECT_THAT(traced.explain().why_sizes_are_fixed, ::testing::ElementsAre(::testing::HasSubstr("a symbol")));
}

// Writes of other tensors than arguments could not be undone.
TEST(Trace, KeepsSizesOfAFunctionThatWritesOtherTensors) {
  const at::Tensor calls = at::zeros({});
  const TracedFunction traced = trace(
      [calls](Tensors in) -> Tensors {
        calls.add_(1);
        return {in[0] * calls};
      },
      Options().compile(CompileMode::kBlocking));
  for (int call = 1; call <= 12; ++call) {
    const at::Tensor x = at::randn({3 + call % 4, 2});
    EXPECT_TRUE(at::equal(traced({x}).front(), x * call));
  }
  EXPECT_THAT(traced.explain().why_sizes_are_fixed, ::testing::ElementsAre(::testing::HasSubstr("no argument")));
}

TEST(Trace, RunsWhatItCannotReplay) {
  const Function branching = [](Tensors in) -> Tensors { return {in[0].sum().item<float>() > 0 ? in[0] * 2 : in[0] * 3}; };
  const TracedFunction traced = expect_same(branching, {{at::ones({2})}, {-at::ones({2})}, {leaf({2})}});
  for (const TraceExplanation::Trace& each : traced.explain().traces) {
    EXPECT_NE(each.refusal.find("_local_scalar_dense: it reads a number from a tensor"), std::string::npos) << each.refusal;
  }
  const Function data_dependent = [](Tensors in) -> Tensors { return {in[0].masked_select(in[0] > 0)}; };
  expect_same(data_dependent, {{at::randn({5})}, {leaf({5})}});
  const Function stops = [](Tensors in) -> Tensors {
    at::Tensor scale;
    {
      const at::NoGradGuard no_grad;
      scale = in[0].norm();
    }
    return {in[0] / scale};
  };
  EXPECT_NE(expect_same(stops, {{leaf({3})}}).explain().traces.front().refusal.find("grad mode"), std::string::npos);
  expect_planned(expect_same(stops, {{at::randn({3})}}));
}

// Autograd detaches in place without an operator that a tracer sees.
TEST(Trace, RunsAFunctionThatDetachesInPlace) {
  const Function detaches = [](Tensors in) -> Tensors {
    at::Tensor scale = in[0].sin();
    scale.detach_();
    return {scale * in[0]};
  };
  EXPECT_EQ(expect_same(detaches, {{leaf({2})}}).explain().traces.front().refusal, "it detaches a tensor in place");
  expect_planned(expect_same(detaches, {{at::randn({2})}}));
}

TEST(Trace, HandsOutViewsInTheGradModeOfTheFunction) {
  const Function without = [](Tensors in) -> Tensors {
    const at::NoGradGuard no_grad;
    return {in[0].slice(0, 1)};
  };
  const Function with = [](Tensors in) -> Tensors {
    const at::AutoGradMode grad_mode(true);
    return {in[0].slice(0, 1)};
  };
  for (const auto& [function, callers_mode] : {std::pair(without, true), std::pair(with, false)}) {
    const TracedFunction traced = trace(function, Options().compile(CompileMode::kBlocking));
    for (int call = 0; call < 3; ++call) {
      const Tensors leaves = {leaf({3}), leaf({3})};
      const at::AutoGradMode grad_mode(callers_mode);
      EXPECT_EQ(traced({leaves[0]})[0].is_leaf(), function({leaves[1]})[0].is_leaf()) << "call " << call;
    }
  }
}

TEST(Trace, RunsAFunctionThatReadsOrWritesMemory) {
  const auto refusal_of = [](const Function& function, const std::vector<Tensors>& calls) {
    return expect_same(function, calls).explain().traces.front().refusal;
  };
  const Function reads = [](Tensors in) -> Tensors {
    const at::Tensor last = (in[0] * 2).select(0, 1).detach();
    return {last.const_data_ptr<float>()[0] > 0 ? in[0].sin() : in[0].cos()};
  };
  EXPECT_EQ(refusal_of(reads, {{at::ones({2, 2})}, {-at::ones({2, 2})}, {leaf({2, 2})}}), "it reads the memory of a tensor");
  const Function writes = [](Tensors in) -> Tensors {
    at::Tensor scaled = in[0].detach() * 2;
    scaled.data_ptr<float>()[1] = 5;
    return {scaled * in[0], scaled.storage().nbytes() > 4 ? in[0] : scaled};
  };
  EXPECT_EQ(refusal_of(writes, {{at::ones({2})}, {leaf({2})}}), "it reads the memory of a tensor");
  const Function packed = [](Tensors in) -> Tensors {
    const auto [data, batches] = at::_pack_padded_sequence(in[0], at::tensor({3, 1}, at::kLong), /*batch_first=*/false);
    return {std::get<0>(at::_pad_packed_sequence(data.sin(), batches, /*batch_first=*/false, 0, 3))};
  };
  EXPECT_EQ(refusal_of(packed, {{at::ones({3, 2, 2})}, {leaf({3, 2, 2})}}), "it reads the memory of a tensor");
}

TEST(Trace, RunsAFunctionThatRegistersHooks) {
  const Function hooked = [](Tensors in) -> Tensors {
    const at::Tensor doubled = in[0] * 2;
    if (doubled.requires_grad()) {
      doubled.register_hook([](const at::Tensor& gradient) { return gradient * 10; });
    }
    return {doubled.sin()};
  };
  EXPECT_NE(expect_same(hooked, {{leaf({3})}}).explain().traces.front().refusal.find("registers a hook"), std::string::npos);
  const Tensors held = {leaf({3})};
  held[0].register_hook([](const at::Tensor& gradient) { return gradient * 3; });
  expect_planned(expect_same([](Tensors in) -> Tensors { return {in[0] * 2}; }, {held}));
}

TEST(Trace, RaisesWhatTheFunctionRaises) {
  const TracedFunction traced = trace([](Tensors in) -> Tensors { return {in[0].mm(in[1])}; });
  for (int call = 0; call < 2; ++call) {
    EXPECT_THROW(traced({at::ones({2, 3}), at::ones({2, 3})}), c10::Error);
    EXPECT_TRUE(at::equal(traced({at::ones({2, 3}), at::ones({3, 1})}).front(), at::full({2, 1}, 3.0F)));
  }
  at::Tensor held = leaf({3});
  const TracedFunction writes_leaf = trace([](Tensors in) -> Tensors { return {in[0].add_(1)}; });
  EXPECT_THROW(writes_leaf({held}), c10::Error);
  EXPECT_THROW(writes_leaf({held}), c10::Error);
}

TEST(Trace, ComputesSecondDerivativesOfTheFirstCall) {
  const Function cube = [](Tensors in) -> Tensors { return {in[0] * in[0] * in[0]}; };
  const TracedFunction traced = trace(cube, Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    const at::Tensor first = torch::autograd::grad({traced({x}).front().sum()}, {x}, {}, true, true).front();
    const at::Tensor second = torch::autograd::grad({first.sum()}, {x}).front();
    EXPECT_TRUE(at::allclose(second, 6 * x)) << call;
  }
}

TEST(Trace, HasAKeyForAutocastOnEachDevice) {
  using testing::AutocastRegion;
  const Tensors arguments = {at::ones({2})};
  std::set<TraceKey> keys = {trace_key(arguments)};
  for (const at::DeviceType device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const AutocastRegion region(device, dtype);
      EXPECT_TRUE(keys.insert(trace_key(arguments)).second) << c10::DeviceTypeName(device) << " " << dtype;
      at::autocast::set_autocast_cache_enabled(false);
      EXPECT_TRUE(keys.insert(trace_key(arguments)).second) << c10::DeviceTypeName(device) << " " << dtype;
      at::autocast::set_autocast_cache_enabled(true);
    }
  }
  EXPECT_EQ(trace_key(arguments), trace_key(arguments));
  EXPECT_FALSE(keys.insert(trace_key(arguments)).second);
}

TEST(Trace, OfAFunctionUnderCudaAutocastServesNoOtherCall) {
  const testing::CudaOnHost cuda;
  const c10::NoGradGuard no_grad;
  const Function function = [](Tensors in) -> Tensors {
    const at::Tensor product = in[0].mm(in[1]);
    return {product, product.exp()};
  };
  const TracedFunction traced = trace(function, Options().compile(CompileMode::kBlocking));
  const Tensors arguments = {cuda.tensor(at::randn({3, 4})), cuda.tensor(at::randn({4, 5}))};
  for (int call = 0; call < 9; ++call) {
    std::optional<testing::AutocastRegion> region;
    if (call % 3 != 1) {
      region.emplace(at::kCUDA, call % 3 == 0 ? at::kBFloat16 : at::kHalf);
    }
    const Tensors expected = function(arguments);
    const Tensors found = traced(arguments);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << "call " << call << ", result " << i;
      EXPECT_TRUE(at::equal(cuda.values(found[i]), cuda.values(expected[i]))) << "call " << call << ", result " << i;
    }
  }
  EXPECT_EQ(traced.explain().traces.size(), 3U);
}

}  // namespace
}  // namespace sconce::tests
