// CallerShare: calls on several threads share the cores.
#include "tests/support/graphs.h"
#include "tests/support/threads.h"

#include "base/usable_cores.h"
#include "plan/caller_share.h"
#include "plan/intra_op_threads.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

namespace sconce {
namespace {

int share_of(int callers) { return std::max(1, usable_cores() / callers); }

// The share of a thread that is the only caller.
int alone() { return has_cpu_quota() ? usable_cores() : 0; }

int share_now() { return CallerShare().threads(); }

// Waits until this thread's share is that. Callers count by what they did in the last milliseconds.
int share_at_last(int expected) {
  int found = share_now();
  for (int i = 0; i < 2000 && found != expected; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    found = share_now();
  }
  return found;
}

// A thread in the midst of a call, while the object lives.
class OtherCaller {
 public:
  OtherCaller() { is_calling_.wait(); }
  ~OtherCaller() {
    may_end_.count_down();
    thread_.join();
  }
  OtherCaller(const OtherCaller&) = delete;
  OtherCaller& operator=(const OtherCaller&) = delete;

 private:
  std::latch is_calling_{1};
  std::latch may_end_{1};
  std::thread thread_{[this] {
    const CallerShare call;
    is_calling_.count_down();
    may_end_.wait();
  }};
};

TEST(CallerShare, IsAnEqualPartOfTheCores) {
  EXPECT_EQ(share_at_last(alone()), alone());
  {
    const OtherCaller second;
    EXPECT_EQ(share_at_last(share_of(2)), share_of(2));
    const OtherCaller third;
    EXPECT_EQ(share_at_last(share_of(3)), share_of(3));
  }
  EXPECT_EQ(share_at_last(alone()), alone());
}

TEST(CallerShare, OfACallWithinACallIsThatOfTheOuterOne) {
  const OtherCaller second;
  const CallerShare outer;
  EXPECT_EQ(CallerShare().threads(), 0);
}

TEST(CallerShare, IsNotTakenByShortCallsNowAndThen) {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) {
      share_now();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_EQ(share_at_last(alone()), alone());
  int shared = 0;
  for (int i = 0; i < 50; ++i) {
    shared += share_now() != alone() ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  stop = true;
  other.join();
  EXPECT_LT(shared, 10);  // the other one may be interrupted within a call
}

TEST(CallerShare, IsNotTakenByTasksOfCalls) {
  std::latch is_calling(1);
  std::latch may_end(1);
  std::thread task([&] {
    use_one_intra_op_thread();
    const CallerShare call;
    is_calling.count_down();
    may_end.wait();
  });
  is_calling.wait();
  EXPECT_EQ(share_at_last(alone()), alone());
  may_end.count_down();
  task.join();
}

TEST(CallerShare, OfAForkedProcessIsAll) {
  const OtherCaller second;
  ASSERT_EQ(share_at_last(share_of(2)), share_of(2));
  const pid_t child = ::fork();
  if (child == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // looks again
    ::_exit(share_now() == alone() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(CallerShare, LimitsTheThreadsOfPlansThatAreNotExact) {
  const testing::Threads many(2 * usable_cores());
  const torch::jit::Module script = testing::module_of("def forward(self, x: Tensor) -> Tensor:\n    return x * 2.0\n");
  const OtherCaller second;
  ASSERT_EQ(share_at_last(share_of(2)), share_of(2));
  for (const bool exact : {false, true}) {
    const Module module = accelerate(script, Options().exact(exact));
    module.forward({at::randn({3})});
    EXPECT_EQ(at::get_num_threads(), 2 * usable_cores());
    const size_t threads = module.method("forward").explain().plans[0].threads;
    EXPECT_EQ(threads, static_cast<size_t>(exact ? 2 * usable_cores() : share_of(2)));
  }
}

TEST(IntraOpLimit, IsTheLesserOfTheOptionsAndTheShare) {
  EXPECT_EQ(IntraOpLimit{}.with(0), 0);
  EXPECT_EQ(IntraOpLimit{}.with(3), 3);
  EXPECT_EQ((IntraOpLimit{.most = 2}).with(0), 2);
  EXPECT_EQ((IntraOpLimit{.most = 2}).with(3), 2);
  EXPECT_EQ((IntraOpLimit{.most = 4}).with(3), 3);
  EXPECT_EQ((IntraOpLimit{.most = 4, .shares_cores = false}).with(3), 4);
}

}  // namespace
}  // namespace sconce
