// RefusalCounts: how often the prepared steps of a plan ran by their ordinary steps, and why.
#pragma once

#include <sconce/explanation.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sconce {

// Shared by all frames of a plan. Written when a step is prepared, or when it gives up, and not in every run.
class RefusalCounts {
 public:
  explicit RefusalCounts(size_t states) : counts_(states * kReasons.size()) {}

  // The reasons of single steps, and those of all steps of a run.
  static constexpr std::array kReasons = {NotPrepared::kOperandKind, NotPrepared::kOperandForm, NotPrepared::kDiffers,
                                          NotPrepared::kFastEnough,  NotPrepared::kNoCode,      NotPrepared::kGaveUp,
                                          NotPrepared::kRequiresGrad};
  static constexpr std::array kReasonsOfRuns = {NotPrepared::kGradients, NotPrepared::kObserved};

  void add(size_t state, NotPrepared reason) { counts_[place(state, reason)].fetch_add(1, std::memory_order_relaxed); }
  uint32_t count(size_t state, NotPrepared reason) const {
    return counts_[place(state, reason)].load(std::memory_order_relaxed);
  }

  // Notes that all steps of some run were ordinary. Writes the first time only, so that threads do not contend.
  void note_run(NotPrepared reason) {
    std::atomic<bool>& met = whole_runs_[place_of_run(reason)];
    if (!met.load(std::memory_order_relaxed)) {
      met.store(true, std::memory_order_relaxed);
    }
  }
  bool met_run(NotPrepared reason) const { return whole_runs_[place_of_run(reason)].load(std::memory_order_relaxed); }

 private:
  static size_t place(size_t state, NotPrepared reason) {
    return state * kReasons.size() + (static_cast<size_t>(reason) - static_cast<size_t>(kReasons.front()));
  }
  static size_t place_of_run(NotPrepared reason) {
    return static_cast<size_t>(reason) - static_cast<size_t>(kReasonsOfRuns.front());
  }
  std::vector<std::atomic<uint32_t>> counts_;  // by state, then reason
  std::array<std::atomic<bool>, kReasonsOfRuns.size()> whole_runs_{};
};

}  // namespace sconce
