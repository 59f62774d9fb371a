// CompiledOnce: code that one thread compiles while others ask for it.
#pragma once

#include "base/compile_queue.h"
#include "base/expected.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace sconce {

// Thread-safe. Once there, the code, or why there is none, stays.
template <typename Code>
class CompiledOnce {
 public:
  // Returns null until the compile ends, and for good if it fails. Takes no lock.
  const Code* get() const { return ready_.load(std::memory_order_acquire); }
  // Returns why it cannot be compiled; empty while it may be. Takes no lock.
  std::string refusal() const { return is_refused_.load(std::memory_order_acquire) ? why_refused_ : std::string(); }

  // Compiles the code, unless that was done before. `compile` returns Expected<Code>; what it throws is a refusal, too.
  template <typename Compile>
  void make(const Compile& compile) {
    const std::lock_guard<std::mutex> lock(compiling_);
    if (get() != nullptr || is_refused_) {
      return;
    }
    try {
      if (Expected<Code> made = compile()) {
        code_.emplace(std::move(*made));
        ready_.store(&*code_, std::memory_order_release);
      } else {
        refuse(made.refusal().reason);
      }
    } catch (const std::exception& error) {
      refuse(error.what());
    }
  }

  // Lets the background thread run the job, which makes the code, unless it was asked before. The queue may refuse: then a
  // later call asks again.
  template <typename Job>
  void submit(Job job) {
    if (!is_submitted_.load(std::memory_order_relaxed) && !is_submitted_.exchange(true)) {
      is_submitted_ = CompileQueue::of_process().submit(std::move(job));
    }
  }

 private:
  void refuse(std::string why) {
    why_refused_ = std::move(why);
    is_refused_.store(true, std::memory_order_release);
  }

  std::atomic<const Code*> ready_{nullptr};
  std::atomic<bool> is_refused_{false};
  std::atomic<bool> is_submitted_{false};
  // Held for as long as it takes to compile; those who ask never take it.
  std::mutex compiling_;
  std::optional<Code> code_;
  std::string why_refused_;
};

}  // namespace sconce
