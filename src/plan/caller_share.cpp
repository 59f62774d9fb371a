#include "plan/caller_share.h"

#include "base/compile_queue.h"
#include "base/usable_cores.h"

#include <c10/util/ApproximateClock.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>

namespace sconce {
namespace {

// Reads the processor's time stamp counter, which counts two or three times per nanosecond.
uint64_t ticks() { return static_cast<uint64_t>(c10::getApproximateTime()); }

constexpr uint64_t kBetweenCounts = uint64_t{1} << 20;  // about half a millisecond
constexpr uint64_t kWindow = uint64_t{1} << 23;         // about four milliseconds

// A list that only grows: a thread that ends leaves its place to a new one.
std::atomic<CallingThread*> all_threads{nullptr};
std::atomic<int> threads_alive{0};  // that have run calls

bool is_alone() { return threads_alive.load(std::memory_order_relaxed) <= 1; }

}  // namespace

// A thread that runs calls, in a cache line of its own. It alone writes what follows `is_taken`.
struct alignas(64) CallingThread {
  // Asked by other threads. Returns the part of the time for which the thread is in calls.
  float busy_share(uint64_t now) const {
    const uint64_t since_change = now - std::min(now, changed.load(std::memory_order_relaxed));
    if (since_change > kWindow) {
      return is_calling.load(std::memory_order_relaxed) ? 1 : 0;
    }
    return share_of_window.load(std::memory_order_relaxed);
  }

  void begin_call() {
    is_calling.store(true, std::memory_order_relaxed);
    if (is_alone()) {
      callers = 1;
      return;
    }
    const uint64_t now = ticks();
    if (now - changed.load(std::memory_order_relaxed) > kWindow) {  // the thread was idle, or alone
      begin_window(now, 0);
    }
    changed.store(now, std::memory_order_relaxed);
    if (now - counted_at > kBetweenCounts) {
      count_callers(now);
    }
  }

  void end_call() {
    is_calling.store(false, std::memory_order_relaxed);
    if (is_alone()) {
      return;
    }
    const uint64_t now = ticks();
    const uint64_t began = changed.load(std::memory_order_relaxed);
    busy_in_window += now - std::max(began, window);
    if (now - window > kWindow) {
      begin_window(now, static_cast<float>(busy_in_window) / static_cast<float>(now - window));
    }
    changed.store(now, std::memory_order_relaxed);
  }

  // `share`: of the last window.
  void begin_window(uint64_t now, float share) {
    share_of_window.store(share, std::memory_order_relaxed);
    window = now;
    busy_in_window = 0;
  }

  void count_callers(uint64_t now) {
    counted_at = now;
    float others = 0;
    for (const CallingThread* each = all_threads.load(std::memory_order_acquire); each != nullptr; each = each->next) {
      others += each != this ? each->busy_share(now) : 0;
    }
    callers = 1 + static_cast<int>(std::lround(others));
  }

  std::atomic<bool> is_taken{true};
  std::atomic<bool> is_calling{false};
  std::atomic<uint64_t> changed{0};  // when its last call began or ended
  std::atomic<float> share_of_window{0};
  CallingThread* next = nullptr;
  int depth = 0;    // of calls within calls
  int callers = 1;  // with this one
  uint64_t counted_at = 0;
  uint64_t window = 0;  // when it began
  uint64_t busy_in_window = 0;
};

namespace {

CallingThread* take_place() {
  threads_alive.fetch_add(1, std::memory_order_relaxed);
  for (CallingThread* each = all_threads.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    if (!each->is_taken.load(std::memory_order_relaxed) && !each->is_taken.exchange(true, std::memory_order_acquire)) {
      each->depth = 0;  // in a forked process its thread may have been within a call
      return each;
    }
  }
  auto* made = new CallingThread;
  made->next = all_threads.load(std::memory_order_relaxed);
  while (!all_threads.compare_exchange_weak(made->next, made, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return made;
}

void leave_place(CallingThread& place) {
  place.changed.store(0, std::memory_order_relaxed);
  place.is_taken.store(false, std::memory_order_release);
  threads_alive.fetch_sub(1, std::memory_order_relaxed);
}

constinit thread_local CallingThread* known_thread = nullptr;

// A child process has this thread alone, wherever the others were when it was forked.
void forget_other_threads() {
  bool is_listed = false;
  for (CallingThread* each = all_threads.load(std::memory_order_relaxed); each != nullptr; each = each->next) {
    if (each == known_thread) {
      is_listed = true;
    } else {
      each->is_calling.store(false, std::memory_order_relaxed);
      each->changed.store(0, std::memory_order_relaxed);
      each->is_taken.store(false, std::memory_order_relaxed);
    }
  }
  threads_alive.store(is_listed ? 1 : 0, std::memory_order_relaxed);
}

CallingThread& this_thread() {
  if (known_thread == nullptr) [[unlikely]] {
    static const int registered = ::pthread_atfork(nullptr, nullptr, forget_other_threads);
    static_cast<void>(registered);
    struct Place {
      CallingThread* const taken = take_place();
      ~Place() { leave_place(*taken); }
    };
    static thread_local const Place place;
    known_thread = place.taken;
  }
  return *known_thread;
}

}  // namespace

CallerShare::CallerShare() : thread_(this_thread()) {
  if (thread_.depth++ > 0) {
    return;
  }
  thread_.begin_call();
  const bool compiles = CompileQueue::is_at_work();
  if (thread_.callers > 1 || compiles || has_cpu_quota()) [[unlikely]] {
    threads_ = std::max(1, (usable_cores() - (compiles ? 1 : 0)) / thread_.callers);
  }
}

CallerShare::~CallerShare() {
  if (--thread_.depth == 0) {
    thread_.end_call();
  }
}

void CallerShare::leave_out_this_thread() {
  static thread_local CallingThread unlisted;
  unlisted.depth = 1;
  known_thread = &unlisted;
}

}  // namespace sconce
