#include "base/compile_queue.h"

#include <gmock/gmock.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
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
#endif

}  // namespace
}  // namespace sconce
