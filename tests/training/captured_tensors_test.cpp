// What a traced function finds outside of its arguments, or reads past autograd.
#include <sconce/compiled_backward.h>
#include <sconce/trace.h>

#include "tests/training/same_calls.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace sconce::tests {
namespace {

TracedFunction traced(const Function& function) { return trace(function, Options().compile(CompileMode::kBlocking)); }

void expect_same_call(const Function& function, const TracedFunction& plan, const Tensors& arguments) {
  expect_same(function, plan, {arguments}, /*rounds=*/5);
}

std::string refusal_of(const TracedFunction& plan) {
  const TraceExplanation explanation = plan.explain();
  return explanation.traces.empty() ? "not recorded" : explanation.traces.front().refusal;
}

TEST(TracedData, HasNoGradient) {
  const std::vector<Function> functions = {
      [](const Tensors& in) -> Tensors { return {in[0].data() * in[1]}; },
      [](const Tensors& in) -> Tensors { return {(in[0] * 2).data() * in[1] + in[0].sin()}; },
      [](const Tensors& in) -> Tensors {
        const at::Tensor hard = (in[0] > 0).to(at::kFloat);
        return {(hard - in[0].data() + in[0]) * in[1]};  // straight through
      },
      [](const Tensors& in) -> Tensors { return {in[0].variable_data().t().matmul(in[1]) + in[0].t()[0]}; },
      [](const Tensors& in) -> Tensors { return {in[0].data().data().exp() * in[1]}; },
  };
  for (const Function& function : functions) {
    const TracedFunction plan = traced(function);
    expect_same_call(function, plan, {leaf({3, 3}), leaf({3, 3})});
    EXPECT_EQ(refusal_of(plan), "");
    const at::NoGradGuard no_grad;
    expect_same_call(function, plan, {leaf({3, 3}), leaf({3, 3})});
  }
}

// A write in place is seen through `.data()`, which shares the memory.
TEST(TracedData, SharesMemory) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0] * 2;
    const at::Tensor data = x.data();
    x.add_(in[1]);
    return {data * in[1]};
  };
  expect_same_call(function, traced(function), {leaf({4}), leaf({4})});
}

TEST(TracedCaptures, AreRefusedWhereNobodyOwnsTheMemory) {
  const Function function = [](const Tensors& in) -> Tensors {
    std::vector<float> table(5);
    std::iota(table.begin(), table.end(), 1.5F);
    return {at::from_blob(table.data(), {5}).clone() * in[0]};
  };
  const TracedFunction plan = traced(function);
  expect_same_call(function, plan, {leaf({5})});
  EXPECT_THAT(refusal_of(plan), ::testing::HasSubstr("memory that no tensor owns"));
}

TEST(TracedCaptures, MayBeMemoryThatATensorOwns) {
  static int deleted = 0;
  {
    const at::Tensor owner = at::from_blob(new float[5]{1, 2, 3, 4, 5}, {5},
                                           [](void* memory) { delete[] static_cast<float*>(memory), ++deleted; });
    const at::Tensor weight = leaf({5});
    const Function function = [owner, weight](const Tensors& in) -> Tensors {
      return {owner.slice(0, 1) * weight.slice(0, 1) * in[0] + at::tensor({1.0F, 2.0F, 3.0F, 4.0F})};
    };
    const TracedFunction plan = traced(function);
    expect_same_call(function, plan, {leaf({4})});
    EXPECT_EQ(refusal_of(plan), "");
    const at::NoGradGuard no_grad;
    owner.mul_(2);
    weight.add_(1);
    expect_same_call(function, plan, {at::randn({4})});
  }
  EXPECT_EQ(deleted, 1);
}

// C++ code fills fresh memory, and then operators write it.
TEST(TracedCaptures, KeepWhatMemoryHeldBeforeItWasWritten) {
  const std::vector<Function> functions = {
      [](const Tensors& in) -> Tensors {
        at::Tensor w = at::tensor({1.0F, 2.0F, 3.0F});
        w.mul_(2);
        return {in[0] * w};
      },
      [](const Tensors& in) -> Tensors {
        const at::Tensor w = torch::tensor(std::vector<float>{1, 2, 3});
        w[1] *= 2;
        return {in[0] * w};
      },
      [](const Tensors& in) -> Tensors {
        at::Tensor sum = at::empty({3});
        std::fill_n(sum.data_ptr<float>(), 3, 0.5F);
        for (int i = 0; i < 3; ++i) {
          sum += in[0];
        }
        return {sum};
      },
      [](const Tensors& in) -> Tensors { return {in[0].index_select(0, at::tensor({1L, 0L}).add_(1))}; },
      [](const Tensors& in) -> Tensors { return {at::tensor({1.0F, 2.0F}), in[0] * 2}; },
  };
  for (const Function& function : functions) {
    const TracedFunction plan = traced(function);
    expect_same_call(function, plan, {leaf({3})});
    EXPECT_EQ(refusal_of(plan), "");
  }
}

TEST(TracedCaptures, AreRefusedWhereThePointerIsUsedAfterAnOperator) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor w = at::empty({3}).zero_();
    w.data_ptr<float>()[1] = 7;
    return {in[0] * w};
  };
  const TracedFunction plan = traced(function);
  expect_same_call(function, plan, {leaf({3})});
  EXPECT_THAT(refusal_of(plan), ::testing::HasSubstr("reads the memory of a tensor"));
}

// Heads of a model are often parts of one product. The call that is recorded has a history of its own.
TEST(TracedResults, MayBeViewsOfOneAnother) {
  const at::Tensor outside = leaf({4, 6});
  const std::vector<Function> functions = {
      [](const Tensors& in) -> Tensors { return in[0].mm(in[1]).chunk(2, 1); },
      [](const Tensors& in) -> Tensors {
        const at::Tensor h = in[0].mm(in[1]);
        return {h.slice(1, 0, 2), h, h.t()};
      },
      [](const Tensors& in) -> Tensors {
        const at::Tensor h = in[0].mm(in[1]);
        return {h.select(1, 3), h * 2, h.slice(1, 2, 5), h.select(1, 3)};
      },
      [outside](const Tensors& in) -> Tensors { return {outside.slice(0, 0, 1), in[0] * 2, outside.slice(0, 3, 4)}; },
      [](const Tensors& in) -> Tensors {
        return {at::view_as_real(at::complex(in[0], in[0] * 2)).select(2, 1), in[0].detach(), in[0]};
      },
  };
  for (const Function& function : functions) {
    const TracedFunction plan = traced(function);
    for (int call = 0; call < 3; ++call) {
      const at::Tensor x = at::randn({4, 6});
      std::vector<Tensors> gradients;
      for (const Function& each : {function, Function(plan)}) {
        const Tensors leaves = {x.clone().set_requires_grad(true), x.t().mm(x).set_requires_grad(true)};
        outside.mutable_grad() = at::Tensor();
        at::Tensor loss = at::zeros({});
        for (const at::Tensor& result : each(leaves)) {
          loss = result.requires_grad() ? loss + (result * result).sum() : loss;
        }
        loss.backward();
        gradients.push_back({leaves[0].grad(), leaves[1].grad(), outside.grad()});
      }
      for (size_t i = 0; i < gradients[0].size(); ++i) {
        ASSERT_EQ(gradients[1][i].defined(), gradients[0][i].defined()) << "call " << call << ", gradient " << i;
        EXPECT_TRUE(!gradients[0][i].defined() || at::allclose(gradients[1][i], gradients[0][i], 1e-4, 1e-4))
            << "call " << call << ", gradient " << i;
      }
    }
  }
}

TEST(TracedResults, CountTheirVersions) {
  const TracedFunction plan = traced([](const Tensors& in) -> Tensors { return {in[0].exp()}; });
  for (int call = 0; call < 3; ++call) {
    const at::Tensor y = plan({leaf({3})}).front();
    {
      const at::NoGradGuard no_grad;
      y.mul_(2);
    }
    EXPECT_THROW(y.sum().backward(), c10::Error) << call;
  }
}

// Nodes have saved tensors of the recording.
TEST(TracedCalls, MayHaveTheirBackwardCompiled) {
  const TracedFunction plan = traced([](const Tensors& in) -> Tensors {
    const at::Tensor picked = in[0].index_select(0, at::arange(2, -1, -1, at::kLong));
    return {at::layer_norm(picked, {3}) * in[1].tanh()};
  });
  const BackwardCache backwards{Options().compile(CompileMode::kBlocking)};
  for (int call = 0; call < 6; ++call) {
    const at::Tensor x = leaf({3 + call % 2, 3});
    const at::Tensor y = leaf({3, 3});
    const at::Tensor x_twin = x.detach().clone().set_requires_grad(true);
    const at::Tensor y_twin = y.detach().clone().set_requires_grad(true);
    (at::layer_norm(x_twin.slice(0, 0, 3).flip(0), {3}) * y_twin.tanh()).pow(2).sum().backward();
    {
      const CompiledBackward scope(backwards);
      plan({x, y}).front().pow(2).sum().backward();
    }
    EXPECT_TRUE(at::allclose(x.grad(), x_twin.grad(), 1e-4, 1e-5)) << call;
    EXPECT_TRUE(at::allclose(y.grad(), y_twin.grad(), 1e-4, 1e-5)) << call;
  }
}

TEST(TracedCalls, MayRunInInferenceMode) {
  const at::Tensor weight = leaf({3, 3});
  const std::vector<Function> functions = {
      [](const Tensors& in) -> Tensors { return {in[0] * 2}; },
      [weight](const Tensors& in) -> Tensors { return {at::linear(in[0], weight.t()) + weight.select(0, 1)}; },
      [](const Tensors& in) -> Tensors { return {in[0].data().slice(0, 1) + in[0].detach().slice(0, 1)}; },
  };
  const at::Tensor normal = at::randn({3, 3});
  for (const Function& function : functions) {
    const TracedFunction plan = traced(function);
    const c10::InferenceMode inference;
    for (const at::Tensor& x : {normal, at::randn({3, 3})}) {
      for (int call = 0; call < 4; ++call) {
        EXPECT_TRUE(at::allclose(plan({x}).front(), function({x}).front()));
      }
    }
    EXPECT_EQ(refusal_of(plan), "");
  }
}

TEST(TracedCalls, ThatGiveATensorOtherMemoryAreRefused) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = at::empty({0});
    x.set_(in[0]);
    return {x * in[1]};
  };
  const TracedFunction plan = traced(function);
  const at::NoGradGuard no_grad;
  expect_same_call(function, plan, {at::randn({4, 5}), at::randn({5})});
  EXPECT_THAT(refusal_of(plan), ::testing::HasSubstr("set_"));
}

TEST(TracedCalls, AreRecordedOnceAnomalyModeIsOff) {
  const Function function = [](const Tensors& in) -> Tensors { return {in[0].sin() * in[1]}; };
  const TracedFunction plan = traced(function);
  torch::autograd::AnomalyMode::set_enabled(true);
  expect_same_call(function, plan, {leaf({3}), leaf({3})});
  torch::autograd::AnomalyMode::set_enabled(false);
  EXPECT_TRUE(plan.explain().traces.empty());
  expect_same_call(function, plan, {leaf({3}), leaf({3})});
  EXPECT_EQ(refusal_of(plan), "");
}

// A function may throw what it likes while it is recorded. Its arguments are as they would be without a trace.
TEST(TracedCalls, MayThrowAnything) {
  bool throws = true;
  const Function function = [&](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    if (throws) {
      throw std::runtime_error("not today");
    }
    return {in[0] * in[1]};
  };
  const TracedFunction plan = traced(function);
  const at::Tensor w = leaf({3});
  const at::Tensor x = w * 1;
  EXPECT_THROW(plan({x, w}), std::runtime_error);
  throws = false;
  plan({x, w}).front().sum().backward();
  EXPECT_TRUE(at::allclose(w.grad(), w.detach() * 8));
}

}  // namespace
}  // namespace sconce::tests
