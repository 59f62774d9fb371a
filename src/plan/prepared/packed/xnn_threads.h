// XnnThreads: the threads on which one operator of XNNPACK runs.
#pragma once

#include <cstdint>
#include <mutex>

struct pthreadpool;

namespace sconce {

// Work of fewer multiplications runs on the caller's thread: to fork costs more than it gains.
inline constexpr int64_t kMultiplicationsWorthAFork = 1 << 20;

// Returns on how many threads an operator with so many multiplications runs: those that LibTorch's operators may use on this
// thread, or 1 if to fork costs more than it gains.
int xnn_threads_for(int64_t multiplications);

// Lends the pool of so many threads, which all frames share. While another thread has it, or for one thread, `get` returns
// null: the operator then runs on the caller's thread alone.
class XnnThreads {
 public:
  explicit XnnThreads(int threads);
  pthreadpool* get() const { return pool_; }

 private:
  std::unique_lock<std::mutex> lock_;
  pthreadpool* pool_ = nullptr;
};

// Returns the pool of so many threads, for an operator to split its work by; null for one thread.
pthreadpool* xnn_pool_of(int threads);

}  // namespace sconce
