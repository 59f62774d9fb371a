#pragma once

#include <barrier>
#include <functional>
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

}  // namespace sconce::testing
