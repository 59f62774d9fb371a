#include "plan/fork_pool.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

namespace sconce {
namespace {

FuturePtr fork_int(std::function<int64_t()> work) {
  return fork(c10::IntType::get(), [work = std::move(work)] { return c10::IValue(work()); });
}

int64_t fibonacci(int64_t n) {
  if (n < 2) {
    return n;
  }
  const FuturePtr left = fork_int([n] { return fibonacci(n - 1); });
  const FuturePtr right = fork_int([n] { return fibonacci(n - 2); });
  return wait(left).toInt() + wait(right).toInt();
}

// Far more tasks wait for each other than there are threads.
TEST(ForkPool, NestedForksThatWaitForEachOtherFinish) { EXPECT_EQ(fibonacci(16), 987); }

TEST(ForkPool, AChainOfTasksEachOfWhichWaitsForTheNextFinishes) {
  std::function<int64_t(int64_t)> depth = [&](int64_t n) {
    return n == 0 ? 0 : 1 + wait(fork_int([&depth, n] { return depth(n - 1); })).toInt();
  };
  EXPECT_EQ(depth(500), 500);
}

TEST(ForkPool, ManyThreadsMayWaitForOneFuture) {
  std::atomic<int> runs{0};
  const FuturePtr future = fork_int([&] { return ++runs; });
  std::vector<std::thread> threads;
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { sum += wait(future).toInt(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(sum, 8);
  EXPECT_EQ(runs, 1);
}

TEST(ForkPool, AnExceptionReachesEveryWaiterAsItsOwnObject) {
  const FuturePtr future = fork_int([]() -> int64_t { TORCH_CHECK_INDEX(false, "out of range"); });
  for (int i = 0; i < 2; ++i) {
    try {
      wait(future);
      FAIL() << "nothing was thrown";
    } catch (c10::IndexError& error) {
      EXPECT_STREQ(error.what_without_backtrace(), "out of range") << "what another waiter added is not here";
      error.add_context("added by this waiter");
    }
  }
  const FuturePtr other = fork_int([]() -> int64_t { throw std::runtime_error("no c10::Error"); });
  EXPECT_THAT([&] { wait(other); }, ::testing::ThrowsMessage<std::runtime_error>("no c10::Error"));
}

TEST(ForkPool, TasksRunInTheStateOfTheirCaller) {
  for (const bool grad : {true, false}) {
    const c10::AutoGradMode mode(grad);
    EXPECT_EQ(wait(fork_int([] { return c10::GradMode::is_enabled() ? 1 : 0; })).toInt(), grad ? 1 : 0);
  }
}

TEST(ForkPool, AFutureOfSomebodyElseCanBeWaitedFor) {
  const auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  std::thread other([&] { future->markCompleted(c10::IValue(3)); });
  EXPECT_EQ(wait(future).toInt(), 3);
  other.join();
}

TEST(InFlightCount, AreWaitedFor) {
  std::atomic<bool> ended{false};
  {
    InFlightCount users;
    fork_int([&ended, token = users.use()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended = true;
      return 0;
    });
  }
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace sconce
