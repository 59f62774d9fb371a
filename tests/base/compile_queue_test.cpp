#include "base/compile_queue.h"

#include <gmock/gmock.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace sconce {
namespace {

TEST(CompileQueue, RunsJobsInTheirOrderOnAnotherThread) {
  CompileQueue queue;
  std::vector<int> order;
  std::promise<std::thread::id> last;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(queue.submit([&order, i] { order.push_back(i); }));
  }
  EXPECT_TRUE(queue.submit([&last] { last.set_value(std::this_thread::get_id()); }));
  EXPECT_NE(last.get_future().get(), std::this_thread::get_id());
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2));
}

TEST(CompileQueue, StoppingDropsWhatWaitsAndEndsWhatRuns) {
  CompileQueue queue;
  std::promise<void> begun;
  std::promise<void> go_on;
  std::atomic<bool> is_over{false};
  std::atomic<int> others{0};
  EXPECT_TRUE(queue.submit([&] {
    begun.set_value();
    go_on.get_future().wait();
    is_over = true;
  }));
  begun.get_future().wait();
  std::promise<void> dropped;
  auto owned = std::shared_ptr<void>(nullptr, [&dropped](void*) { dropped.set_value(); });
  EXPECT_TRUE(queue.submit([&others, held = std::move(owned)] { ++others; }));
  std::thread stopping([&queue] { queue.stop(); });
  dropped.get_future().wait();
  go_on.set_value();
  stopping.join();
  EXPECT_TRUE(is_over);
  EXPECT_EQ(others, 0);
  EXPECT_FALSE(queue.submit([] {}));
}

TEST(CompileQueue, CompilesGoBeforeWhatCanWait) {
  CompileQueue queue;
  std::promise<void> go_on;
  std::string order;
  EXPECT_TRUE(queue.submit([&] { go_on.get_future().wait(); }));
  EXPECT_TRUE(queue.submit_last([&order] { order += 'x'; }));
  EXPECT_TRUE(queue.submit_last([&] {
    order += 'y';
    EXPECT_TRUE(queue.submit([&order] { order += 'c'; }));
  }));
  EXPECT_TRUE(queue.submit_last([&order] { order += 'z'; }));
  EXPECT_TRUE(queue.submit([&order] { order += 'a'; }));
  EXPECT_TRUE(queue.submit([&order] { order += 'b'; }));
  go_on.set_value();
  queue.wait_until_idle();
  EXPECT_EQ(order, "abxycz");
  queue.stop();
  queue.wait_until_idle();  // ends
}

TEST(CompileQueue, RefusesJobsWhenItIsFull) {
  CompileQueue queue;
  std::promise<void> go_on;
  std::promise<void> begun;
  EXPECT_TRUE(queue.submit([&] {
    begun.set_value();
    go_on.get_future().wait();
  }));
  begun.get_future().wait();
  for (size_t i = 0; i < CompileQueue::kMaxWaiting; ++i) {
    EXPECT_TRUE(queue.submit([] {}));
  }
  EXPECT_FALSE(queue.submit([] {}));
  go_on.set_value();
}

#if !defined(__SANITIZE_THREAD__)  // whose threads do not survive a fork
TEST(CompileQueue, AForkedProcessHasAThreadOfItsOwn) {
  const auto run_a_job = [] {
    auto done = std::make_shared<std::promise<void>>();
    EXPECT_TRUE(CompileQueue::of_process().submit([done] { done->set_value(); }));
    done->get_future().wait();
  };
  run_a_job();
  const pid_t child = ::fork();
  if (child == 0) {
    run_a_job();
    CompileQueue::of_process().stop();
    _exit(0);
  }
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  run_a_job();
}

// Else the child could find a lock that the job held, and wait for it forever.
TEST(CompileQueue, AForkWaitsForTheJobThatRunsAndTheChildDoesThoseThatWait) {
  std::atomic<bool> is_running{false};
  std::atomic<bool> may_end{false};
  std::atomic<bool> is_over{false};
  const auto later_ran = std::make_shared<std::atomic<bool>>(false);
  ASSERT_TRUE(CompileQueue::of_process().submit([&] {
    is_running = true;
    while (!may_end) {
      std::this_thread::yield();
    }
    is_over = true;
  }));
  while (!is_running) {
    std::this_thread::yield();
  }
  ASSERT_TRUE(CompileQueue::of_process().submit([later_ran] { *later_ran = true; }));
  std::thread ender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    may_end = true;
  });
  const pid_t child = ::fork();
  if (child == 0) {
    alarm(60);
    const bool was_over = is_over;
    CompileQueue::of_process().run_and_wait([] {});
    _exit(was_over && *later_ran ? 0 : 1);
  }
  ender.join();
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  CompileQueue::of_process().run_and_wait([] {});
  EXPECT_TRUE(*later_ran);
}
#endif

}  // namespace
}  // namespace sconce
