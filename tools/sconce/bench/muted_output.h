// What a model prints and warns, kept off the terminal while calls are timed: thousands of lines, and their time.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <cstddef>

namespace sconce::cli {

// While it lives, `print` of scripts is silent on all threads; one at a time.
class MutedOutput {
 public:
  MutedOutput();
  ~MutedOutput();
  MutedOutput(const MutedOutput&) = delete;
  MutedOutput& operator=(const MutedOutput&) = delete;

  // Warnings are heard by thread: each thread that calls the model holds one of these.
  class OnThread {
   public:
    explicit OnThread(MutedOutput& muted) : guard_(&muted.warnings_) {}

   private:
    const c10::WarningUtils::WarningHandlerGuard guard_;
  };

  // How often the model wanted to say something.
  size_t count() const;

 private:
  class Warnings : public c10::WarningHandler {
   public:
    void process(const c10::Warning& /*warning*/) override { count_.fetch_add(1, std::memory_order_relaxed); }
    size_t count() const { return count_.load(std::memory_order_relaxed); }

   private:
    std::atomic<size_t> count_ = 0;
  };

  void (*previous_print_)(const std::string&);
  Warnings warnings_;
};

}  // namespace sconce::cli
