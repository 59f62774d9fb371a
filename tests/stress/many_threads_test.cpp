// More threads than cores, one module: cold, with mixed shapes; and no thread waits for another one's run.
#include "tests/stress/threads.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/print_handler.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace sconce::testing {
namespace {

constexpr int kColdThreads = 64;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kCalls = 10'000;
#else
constexpr int kCalls = 100'000;
#endif

torch::jit::Module script() {
  torch::jit::Module module("__torch__.Mixed");
  module.register_parameter("weight", at::arange(8.0F) / 8, /*is_buffer=*/false);
  module.define(R"(
    def forward(self, x: Tensor, n: int) -> Tuple[Tensor, List[int]]:
        y = x * self.weight[:x.size(-1)]
        sizes: List[int] = []
        for i in range(n):
            if i % 2 == 0:
                y = y + i
            else:
                y = y.relu()
            sizes.append(y.dim())
        return y, sizes

    def loud(self, x: Tensor, waits: bool) -> Tensor:
        if waits:
            print("waiting")
        return x + 1
  )");
  module.eval();
  return module;
}

at::Tensor input_number(int64_t i) {
  std::vector<int64_t> sizes(static_cast<size_t>(i % 3), 1 + i % 5);
  sizes.push_back(1 + i % 8);
  return at::full(sizes, static_cast<double>(i % 7) - 3, i % 4 == 0 ? at::kDouble : at::kFloat);
}

at::Tensor expected_answer(const torch::jit::Module& module, const at::Tensor& x, int64_t n) {
  const at::NoGradGuard no_grad;
  at::Tensor y = x * module.attr("weight").toTensor().slice(0, 0, x.size(-1));
  for (int64_t i = 0; i < n; ++i) {
    y = i % 2 == 0 ? y + i : y.relu();
  }
  return y;
}

TEST(ManyThreads, AnswerRightOnAColdModuleWithMixedShapes) {
  const torch::jit::Module oracle = script();
  // Smaller than the number of specs, so that plans are evicted beside it all.
  const Module module = accelerate(script(), Options().plan_cache_capacity(4));
  std::atomic<int> wrong{0};
  run_threads(kColdThreads, [&](int thread) {
    const at::NoGradGuard no_grad;
    for (int i = thread; i < kCalls; i += kColdThreads) {
      const at::Tensor x = input_number(i);
      const c10::IValue answer = module.forward({x, i % 6});
      const auto& results = answer.toTupleRef().elements();
      const bool is_right = at::equal(results[0].toTensor(), expected_answer(oracle, x, i % 6)) &&
                            results[1].toIntVector() == std::vector<int64_t>(static_cast<size_t>(i % 6), x.dim());
      wrong += is_right ? 0 : 1;
    }
  });
  EXPECT_EQ(wrong, 0);
  const Counters counters = module.method("forward").explain().counters;
  EXPECT_EQ(counters.invocations, static_cast<uint64_t>(kCalls));
  EXPECT_EQ(counters.cache_hits + counters.cache_misses, counters.invocations);
  EXPECT_GT(counters.evictions, 0U);
}

// ---- no thread waits for a run --------------------------------------------------------------------------------------

// The model prints, and the handler does not return until the others are done.
class Gate {
 public:
  void wait_until_open() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    timed_out_ = !changed_.wait_for(lock, std::chrono::seconds(60), [this] { return open_; }) || timed_out_;
  }
  void wait_for_visitors(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool timed_out() const { return timed_out_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
  bool timed_out_ = false;
};
Gate* gate = nullptr;

TEST(ManyThreads, NoLockIsHeldDuringARun) {
  Gate the_gate;
  gate = &the_gate;
  const auto handler = torch::jit::getPrintHandler();
  torch::jit::setPrintHandler([](const std::string&) { gate->wait_until_open(); });
  const Module module = accelerate(script());
  constexpr int kWaiting = 3;
  run_threads(kWaiting + 1, [&](int thread) {
    if (thread < kWaiting) {
      module.run_method("loud", {at::ones({2}), true});
      return;
    }
    the_gate.wait_for_visitors(kWaiting);
    // While those are in the middle of their runs: the same plan, new specs, another method, everything that looks or
    // cleans.
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(at::equal(module.run_method("loud", {input_number(i), false}).toTensor(), input_number(i) + 1));
    }
    EXPECT_TRUE(module.forward({at::ones({2}), 1}).isTuple());
    EXPECT_GE(module.method("loud").explain().counters.invocations, 200U);
    EXPECT_FALSE(module.method("loud").debug_state().plans.empty());
    module.method("loud").clear_cache();
    the_gate.open();
  });
  torch::jit::setPrintHandler(handler);
  EXPECT_FALSE(the_gate.timed_out());
}

}  // namespace
}  // namespace sconce::testing
