#include "base/compile_queue.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <future>
#include <limits>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

namespace sconce {
namespace {

constexpr int kNiceness = 10;

// A thread of Linux has a priority of its own. Without the permission to change it, the thread runs like any other.
void make_background_thread() {
  pthread_setname_np(pthread_self(), "sconce-compile");
  static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness));
}

// The end of a process destroys first the thread-local objects of the thread that ends it, and then static objects, the
// newest first.
struct StopAtExit {
  ~StopAtExit() { CompileQueue::of_process().stop(); }
};

// Most processes end by their main thread, which thus stops the queue before any static object is destroyed.
void stop_with_main_thread() {
  if (getpid() == gettid()) {
    thread_local const StopAtExit stop_at_exit;
    static_cast<void>(stop_at_exit);
  }
}

// The main thread need not call sconce itself: it loads the library of most programs.
const bool kIsLoaded = [] {
  stop_with_main_thread();
  return true;
}();

}  // namespace

CompileQueue* CompileQueue::of_process_ = nullptr;
std::atomic<bool> CompileQueue::is_at_work_{false};

// Not destroyed, because static objects of the program may submit jobs until the end of the process. A child process has
// no other threads: it begins with a queue whose thread has not started.
CompileQueue& CompileQueue::of_process() {
  static CompileQueue& queue = *[] {
    of_process_ = new CompileQueue();
    pthread_atfork([] { of_process_->before_fork(); }, [] { of_process_->after_fork(); },
                   [] { of_process_->after_fork_in_child(); });
    return of_process_;
  }();
  stop_with_main_thread();
  return queue;
}

void CompileQueue::before_fork() {
  std::unique_lock<std::mutex> lock(mutex_);
  ++forks_;
  idle_.wait(lock, [this] { return !is_running_ || thread_.get_id() == std::this_thread::get_id(); });
  lock.release();
}

void CompileQueue::after_fork() {
  --forks_;
  changed_.notify_one();
  mutex_.unlock();
}

void CompileQueue::after_fork_in_child() {
  forks_ = 0;
  is_at_work_.store(false, std::memory_order_relaxed);
  if (thread_.joinable()) {
    thread_.detach();
  }
  // The old ones still count their waiters.
  new (&changed_) std::condition_variable();
  new (&idle_) std::condition_variable();
  mutex_.unlock();
}

bool CompileQueue::submit(std::function<void()> job) { return submit_to(waiting_, kMaxWaiting, std::move(job)); }

bool CompileQueue::submit_last(std::function<void()> job) {
  return submit_to(waiting_last_, std::numeric_limits<size_t>::max(), std::move(job));
}

bool CompileQueue::submit_to(Jobs& jobs, size_t most, std::function<void()> job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_stopped_ || jobs.size() >= most) {
    return false;
  }
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
      why_no_thread_.clear();
    } catch (const std::system_error& error) {
      why_no_thread_ = error.what();
      return false;
    }
  }
  jobs.push_back(std::move(job));
  changed_.notify_one();
  return true;
}

void CompileQueue::run_and_wait(const std::function<void()>& job) {
  const auto done = std::make_shared<std::promise<void>>();
  bool is_here = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_here = thread_.get_id() == std::this_thread::get_id();
  }
  // The promise is broken if the queue stops before the job has run.
  if (is_here || !submit([job, done] {
        job();
        done->set_value();
      })) {
    job();
    return;
  }
  std::future<void> is_done = done->get_future();
  try {
    is_done.get();
  } catch (const std::future_error&) {
    job();
  }
}

size_t CompileQueue::compiles_waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_.size() + (is_running_ ? 1 : 0);
}

std::string CompileQueue::why_no_thread() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return why_no_thread_;
}

void CompileQueue::wait_until_idle() {
  std::unique_lock<std::mutex> lock(mutex_);
  idle_.wait(lock, [this] { return is_stopped_ || (!is_running_ && !has_job()); });
}

void CompileQueue::stop() {
  std::array<Jobs, 2> dropped;
  std::thread thread;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopped_ = true;
    dropped[0].swap(waiting_);
    dropped[1].swap(waiting_last_);
    thread.swap(thread_);
    changed_.notify_one();
    idle_.notify_all();
  }
  dropped = {};
  if (thread.joinable()) {
    thread.join();
  }
}

// Where another thread than the main one ends the process, only this stops the queue. Jobs make static objects, which must
// be older than the last registration: so it is repeated, ever less often, while there are new jobs.
void CompileQueue::stop_before_older_objects() {
  const bool is_time = (jobs_run_ & (jobs_run_ - 1)) == 0;
  if (is_time && this == of_process_) {
    static_cast<void>(std::atexit([] { of_process_->stop(); }));
  }
}

void CompileQueue::run() {
  make_background_thread();
  stop_before_older_objects();
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_stopped_ || (has_job() && forks_ == 0); });
    if (is_stopped_) {
      return;
    }
    Jobs& jobs = waiting_.empty() ? waiting_last_ : waiting_;
    std::function<void()> job = std::move(jobs.front());
    jobs.pop_front();
    is_running_ = true;
    is_at_work_.store(true, std::memory_order_relaxed);
    lock.unlock();
    job();
    job = nullptr;  // what it owns is destroyed outside the lock
    ++jobs_run_;
    stop_before_older_objects();
    lock.lock();
    is_running_ = false;
    is_at_work_.store(has_job(), std::memory_order_relaxed);
    idle_.notify_all();
  }
}

}  // namespace sconce
