// CompileQueue: the process's background thread for compiles.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace sconce {

// Runs jobs one after the other, in the order of submission, on one thread of low priority. The thread starts with the first
// job. Free of LibTorch, so that its tests run under ThreadSanitizer without suppressions.
class CompileQueue {
 public:
  static constexpr size_t kMaxWaiting = 256;

  // Stops, see `stop`.
  ~CompileQueue() { stop(); }
  CompileQueue() = default;
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  // Returns the queue that all executors share. It stops before static objects are destroyed that were made before its
  // first use. `on_start` of the first caller runs first on the thread. In a process that was forked, jobs start a new
  // thread; the job that ran during the fork is lost.
  static CompileQueue& of_process(void (*on_start)());

  // Returns false if too many jobs wait, or if the queue has stopped. Throws what std::thread throws if no thread can be
  // started. `job` must not throw.
  bool submit(std::function<void()> job);

  // Drops the jobs that wait, and waits for the one that runs.
  void stop();

 private:
  void run();

  static CompileQueue* of_process_;

  void (*on_start_)() = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace sconce
