#include "plan/fork_pool.h"

#include "plan/intra_op_threads.h"

#include <sconce/script_error.h>

#include <ATen/ThreadLocalState.h>
#include <c10/util/Exception.h>
#include <tbb/concurrent_hash_map.h>
#include <tbb/task_arena.h>

#include <pthread.h>

#include <atomic>
#include <utility>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace sconce {
namespace {

struct Task {
  FuturePtr future;
  std::function<c10::IValue()> work;
  at::ThreadLocalState state;
  std::atomic<bool> begun{false};

  // Runs the task on the first thread that asks; others return at once.
  void run_unless_begun();
};

// The tasks that no thread has started yet, by their future.
using Waiting = tbb::concurrent_hash_map<const c10::ivalue::Future*, std::shared_ptr<Task>>;
Waiting& waiting() {
  static Waiting tasks;
  return tasks;
}

void Task::run_unless_begun() {
  if (begun.exchange(true)) {
    return;
  }
  waiting().erase(future.get());
  {
    const at::ThreadLocalStateGuard guard(state);
    try {
      future->markCompleted(std::exchange(work, nullptr)());
    } catch (...) {
      // The waiting thread handles the exception.
      future->setError(std::current_exception());
    }
  }
}

// The exception of a future is one object for all waiting threads. Each gets a copy, to which it may add context.
// LibTorch's exception classes differ only in name.
template <typename... Errors>
[[noreturn]] void rethrow_own_copy(const std::exception_ptr& shared) {
  try {
    std::rethrow_exception(shared);
  } catch (const c10::Error& error) {
    const auto copy_if = [&]<typename E>() {
      if (const auto* same = dynamic_cast<const E*>(&error)) {
        throw E(*same);
      }
    };
    (copy_if.template operator()<Errors>(), ...);
    throw c10::Error(error);
  } catch (const ScriptError& raised) {
    // LibTorch, too, loses the class of an exception that a script raises in a task.
    throw c10::ivalue::Future::FutureError(std::string(raised.what()));
  }
}

}  // namespace

InFlightCount::Token InFlightCount::use() const {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    ++state_->users;
  }
  const auto end = [state = state_](void*) {
    const std::lock_guard<std::mutex> lock(state->mutex);
    if (--state->users == 0) {
      state->none.notify_all();
    }
  };
  return {nullptr, end};
}

void InFlightCount::wait() const {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->none.wait(lock, [this] { return state_->users == 0; });
}

namespace {

// oneTBB is not instrumented, so TSan must be told that an object in its queue is complete before another thread uses
// it, and destroyed before its memory is used again. As a base class this is constructed before the members and
// destroyed after them.
struct LiesInQueue {
#if defined(__SANITIZE_THREAD__)
  LiesInQueue() { __tsan_acquire(this); }
  LiesInQueue(const LiesInQueue&) : LiesInQueue() {}
  ~LiesInQueue() { __tsan_release(this); }
  void hand_over() { __tsan_release(this); }
  void take_over() const { __tsan_acquire(const_cast<LiesInQueue*>(this)); }
#else
  void hand_over() {}
  void take_over() const {}
#endif
};

class QueuedTask : LiesInQueue {
 public:
  explicit QueuedTask(std::shared_ptr<Task> task) : task_(std::move(task)) { hand_over(); }
  QueuedTask(const QueuedTask& other) : LiesInQueue(other), task_(other.task_) { hand_over(); }
  QueuedTask(QueuedTask&& other) noexcept : LiesInQueue(other), task_(std::move(other.task_)) { hand_over(); }
  QueuedTask& operator=(const QueuedTask&) = delete;
  ~QueuedTask() = default;

  void operator()() const {
    take_over();
    use_one_intra_op_thread();
    task_->run_unless_begun();
  }

 private:
  std::shared_ptr<Task> task_;
};

// A child process has none of its parent's threads, and oneTBB does not start them again.
std::atomic<bool> has_lost_threads{false};

tbb::task_arena& started_arena() {
  static tbb::task_arena& arena = *[] {
    pthread_atfork(nullptr, nullptr, [] { has_lost_threads = true; });
    return new tbb::task_arena;  // jobs may outlive static objects
  }();
  return arena;
}

}  // namespace

FuturePtr fork(c10::TypePtr type, std::function<c10::IValue()> work) {
  auto task = std::make_shared<Task>();
  task->future = c10::make_intrusive<c10::ivalue::Future>(std::move(type));
  task->work = std::move(work);
  FuturePtr future = task->future;
  waiting().insert({future.get(), task});
  if (has_lost_threads) {
    task->run_unless_begun();
  } else {
    started_arena().enqueue(QueuedTask(std::move(task)));
  }
  return future;
}

c10::IValue wait(const FuturePtr& future) {
  std::shared_ptr<Task> task;
  if (Waiting::const_accessor found; waiting().find(found, future.get())) {
    task = found->second;
  }
  if (task) {
    task->run_unless_begun();
  }
  future->wait();
  if (future->hasError()) {
    rethrow_own_copy<c10::IndexError, c10::ValueError, c10::TypeError, c10::NotImplementedError, c10::OutOfMemoryError,
                     c10::LinAlgError, c10::EnforceFiniteError>(future->exception_ptr());
  }
  return future->value();
}

}  // namespace sconce
