#include "base/compile_queue.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <new>
#include <utility>

namespace sconce {
namespace {

constexpr int kNiceness = 10;

// A thread of Linux has a priority of its own. Without the permission to change it, the thread runs like any other.
void make_background_thread() {
  pthread_setname_np(pthread_self(), "sconce-compile");
  static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness));
}

}  // namespace

CompileQueue* CompileQueue::of_process_ = nullptr;

// Not destroyed, because static objects of the program may submit jobs until the end of the process. A child process has
// no other threads: it begins with a queue whose thread has not started.
CompileQueue& CompileQueue::of_process() {
  static CompileQueue& queue = *[] {
    of_process_ = new CompileQueue();
    pthread_atfork([] { of_process_->before_fork(); }, [] { of_process_->after_fork(); },
                   [] { of_process_->after_fork_in_child(); });
    return of_process_;
  }();
  // C++ destroys thread-local objects of the thread that ends the process before it destroys any static object.
  struct StopAtExit {
    ~StopAtExit() { queue.stop(); }
  };
  static const StopAtExit stop_at_exit_of_another_thread;
  if (getpid() == gettid()) {
    thread_local const StopAtExit stop_at_exit;
    static_cast<void>(stop_at_exit);
  }
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
  if (thread_.joinable()) {
    thread_.detach();
  }
  // The old ones still count their waiters.
  new (&changed_) std::condition_variable();
  new (&idle_) std::condition_variable();
  mutex_.unlock();
}

bool CompileQueue::submit(std::function<void()> job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_stopped_ || waiting_.size() >= kMaxWaiting) {
    return false;
  }
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
  }
  waiting_.push_back(std::move(job));
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

void CompileQueue::stop() {
  std::deque<std::function<void()>> dropped;
  std::thread thread;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopped_ = true;
    dropped.swap(waiting_);
    thread.swap(thread_);
    changed_.notify_one();
  }
  dropped.clear();
  if (thread.joinable()) {
    thread.join();
  }
}

void CompileQueue::run() {
  make_background_thread();
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_stopped_ || (!waiting_.empty() && forks_ == 0); });
    if (is_stopped_) {
      return;
    }
    std::function<void()> job = std::move(waiting_.front());
    waiting_.pop_front();
    is_running_ = true;
    lock.unlock();
    job();
    job = nullptr;  // what it owns is destroyed outside the lock
    lock.lock();
    is_running_ = false;
    idle_.notify_all();
  }
}

}  // namespace sconce
