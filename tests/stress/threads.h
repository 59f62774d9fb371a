#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sconce::testing {

// Runs `work(0)` … `work(count - 1)`, each on a thread of its own, all started at the same moment. Exceptions of `work` end
// the process.
inline void run_threads(int count, const std::function<void(int)>& work) {
  std::barrier<> start(count);
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      work(i);
    });
  }
}  // joins

// Threads report here; the main thread asserts.
class Failures {
 public:
  void add(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++count_;
    first_ = first_.empty() ? what : first_;
  }
  void expect_none() const { EXPECT_EQ(count_, 0U) << "the first: " << first_; }

 private:
  std::mutex mutex_;
  size_t count_ = 0;
  std::string first_;
};

}  // namespace sconce::testing
