// The engine of sconce, which is put before LibTorch's while other threads run backward.
#include <sconce/compiled_backward.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

namespace sconce::testing {
namespace {

// In a process of its own, in which no thread has entered a CompiledBackward.
void enter_while_others_run_backward() {
  at::set_num_threads(1);
  std::atomic<bool> is_over{false};
  std::atomic<int> wrong{0};
  std::atomic<int> begun{0};
  const auto check = [&] {
    const at::Tensor w = at::randn({40, 40}).set_requires_grad(true);
    const at::Tensor x = at::randn({8, 40});
    at::tanh(x.mm(w)).sum().backward();
    const at::Tensor expected = x.t().mm(1 - at::tanh(x.mm(w.detach())).pow(2));
    wrong += at::allclose(w.grad(), expected, 1e-4, 1e-5) ? 0 : 1;
  };
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      ++begun;
      while (!is_over) {
        check();
      }
    });
  }
  while (begun < 3) {
    std::this_thread::yield();
  }
  const BackwardCache plans{Options().compile(CompileMode::kBlocking)};
  for (int i = 0; i < 200; ++i) {
    const CompiledBackward scope(plans);
    check();
  }
  is_over = true;
  for (std::thread& other : others) {
    other.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(plans.explain().by_plan, 190U);
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(BackwardEngine, CanBePutInPlaceWhileOtherThreadsRunBackward) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(enter_while_others_run_backward(), ::testing::ExitedWithCode(0), "");
}

// As data-parallel training does, to wait for its communication.
TEST(BackwardEngine, HooksMayQueueCallbacksForTheEnd) {
  const BackwardCache plans{Options().compile(CompileMode::kBlocking)};
  int called = 0;
  for (int step = 0; step < 4; ++step) {
    const at::Tensor w = at::randn({4}).set_requires_grad(true);
    bool was_there = false;
    w.register_hook([&](const at::Tensor& gradient) {
      torch::autograd::Engine::get_default_engine().queue_callback([&] {
        was_there = w.grad().defined();
        ++called;
      });
      return gradient;
    });
    const CompiledBackward scope(plans);
    (w * w).sum().backward();
    EXPECT_TRUE(was_there) << step;
  }
  EXPECT_EQ(called, 4);
}

TEST(BackwardEngine, RunsBackwardsWithinABackward) {
  const BackwardCache plans{Options().compile(CompileMode::kBlocking)};
  for (int step = 0; step < 4; ++step) {
    const at::Tensor w = at::randn({4}).set_requires_grad(true);
    const at::Tensor inner = at::randn({4}).set_requires_grad(true);
    w.register_hook([&](const at::Tensor& gradient) {
      const at::AutoGradMode with_gradients(true);
      (inner * 3).sum().backward();
      return gradient * 2;
    });
    const CompiledBackward scope(plans);
    (w * w).sum().backward();
    EXPECT_TRUE(at::allclose(w.grad(), w.detach() * 4)) << step;
    EXPECT_TRUE(at::allclose(inner.grad(), at::full({4}, 3.0))) << step;
  }
}

// One root, several, gradients that are given, and gradients of chosen tensors.
TEST(BackwardEngine, TakesRootsAndOutputsAsLibTorchDoes) {
  const BackwardCache plans{Options().compile(CompileMode::kBlocking)};
  const at::Tensor w = at::randn({4}).set_requires_grad(true);
  const at::Tensor v = at::randn({4}).set_requires_grad(true);
  const auto compute = [&](int form) {
    const at::Tensor y = (w * v).tanh();
    const at::Tensor z = (w + v).exp();
    const at::Tensor given = at::arange(4).to(at::kFloat);
    w.mutable_grad() = at::Tensor();
    v.mutable_grad() = at::Tensor();
    switch (form) {
      case 0: torch::autograd::backward({y, z}, {given, given * 2}); return std::vector<at::Tensor>{w.grad(), v.grad()};
      case 1: torch::autograd::backward({y.sum()}, {}, std::nullopt, false, {v}); return std::vector<at::Tensor>{v.grad()};
      case 2: return torch::autograd::grad({y}, {v, w}, {given});
      case 3: return torch::autograd::grad({y, z}, {y, w}, {given, given}, std::nullopt, false, /*allow_unused=*/true);
      default:
        torch::autograd::backward({y}, {given}, /*retain_graph=*/true);
        torch::autograd::backward({y}, {given});
        return std::vector<at::Tensor>{w.grad(), v.grad()};
    }
  };
  for (int form = 0; form < 5; ++form) {
    const std::vector<at::Tensor> expected = compute(form);
    for (int call = 0; call < 4; ++call) {
      const CompiledBackward scope(plans);
      const std::vector<at::Tensor> found = compute(form);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-5, 1e-6)) << "form " << form << ", call " << call;
      }
    }
  }
  EXPECT_GE(plans.explain().by_plan, 12U);
}

}  // namespace
}  // namespace sconce::testing
