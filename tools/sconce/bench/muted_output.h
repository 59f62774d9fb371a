// Suppresses a model's prints and warnings while calls are timed: they could be thousands of lines, and take time.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <cstddef>

namespace sconce::cli {

// Silences `print` of scripts on all threads during its lifetime. At most one may exist at a time.
class MutedOutput {
 public:
  MutedOutput();
  ~MutedOutput();
  MutedOutput(const MutedOutput&) = delete;
  MutedOutput& operator=(const MutedOutput&) = delete;

  // Silences warnings of one thread. Each thread that calls the model holds one.
  class OnThread {
   public:
    explicit OnThread(MutedOutput& muted) : guard_(&muted.warnings_) {}

   private:
    const c10::WarningUtils::WarningHandlerGuard guard_;
  };

  // Returns the number of suppressed prints and warnings.
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
