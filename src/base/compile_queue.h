// CompileQueue: the process's background thread for compiles.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace sconce {

// Runs jobs one after the other on one thread of low priority: first compiles, then what can wait, each in the order of
// submission. The thread starts with the first job. Free of LibTorch, so that its tests run under ThreadSanitizer without
// suppressions.
class CompileQueue {
 public:
  static constexpr size_t kMaxWaiting = 1024;  // compiles

  // Stops, see `stop`.
  ~CompileQueue() { stop(); }

  // Returns the queue that the whole process shares. It stops when the process ends, before static objects that its jobs use
  // are destroyed. fork() waits for the job that runs, so that the child finds no lock of a job taken. In the child,
  // the next job starts a new thread, which also does the jobs that waited.
  static CompileQueue& of_process();
  // Returns false if too many jobs wait, if the queue has stopped, or if no thread can be started. `job` must not throw.
  bool submit(std::function<void()> job);
  // Like `submit`, but all compiles go first, later ones too. Any number may wait.
  bool submit_last(std::function<void()> job);

  // Runs the job on the thread, after the compiles that wait, and waits for it. Runs it here if this is the queue's thread,
  // or if the queue takes no job. A job of another library need not survive what this thread does when memory fails.
  void run_and_wait(const std::function<void()>& job);
  // Returns why no thread could be started, as under a limit of processes; empty if it could.
  std::string why_no_thread() const;
  // Returns how many compiles are not done, the one that runs included; jobs of `submit_last` do not count while they wait.
  size_t compiles_waiting() const;
  // Waits for all jobs, those of `submit_last` too. Not for jobs: they would wait for themselves.
  void wait_until_idle();

  // Drops the jobs that wait, and waits for the one that runs.
  void stop();

  // Returns whether a thread of the process runs jobs now, and takes a core from calls.
  static bool is_at_work() { return is_at_work_.load(std::memory_order_relaxed); }

 private:
  using Jobs = std::deque<std::function<void()>>;

  bool submit_to(Jobs& jobs, size_t most, std::function<void()> job);
  void run();
  void stop_before_older_objects();
  bool has_job() const { return !waiting_.empty() || !waiting_last_.empty(); }
  // Waits for the job that runs, and keeps the queue locked until after the fork.
  void before_fork();
  void after_fork();
  void after_fork_in_child();

  static CompileQueue* of_process_;
  static std::atomic<bool> is_at_work_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Jobs waiting_;
  Jobs waiting_last_;
  bool is_stopped_ = false;
  bool is_running_ = false;  // a job
  size_t forks_ = 0;         // that wait for the end of a job
  uint64_t jobs_run_ = 0;    // used by the thread alone
  std::condition_variable idle_;
  std::thread thread_;
  std::string why_no_thread_;
};

}  // namespace sconce
