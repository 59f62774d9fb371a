// RecordingCounts: what became of the runs of a recorded node.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace sconce {

// Shared by all frames of a plan.
class RecordingCounts {
 public:
  std::atomic<uint64_t> recordings{0};  // that were made
  std::atomic<uint64_t> replays{0};     // the first one of each recording included
  std::atomic<uint64_t> alive{0};       // recordings that frames have now

  // Counts a run without a recording.
  void add_unrecorded(const std::string& reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++unrecorded_[reason];
  }
  // Returns the numbers of runs without a recording, by reason.
  std::map<std::string, uint64_t> unrecorded() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return unrecorded_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> unrecorded_;
};

}  // namespace sconce
