// TimedSteps: which steps of a plan run by their kernel, and which by LibTorch's operator, because calls have timed both.
#pragma once

#include "base/timed_choices.h"

#include <cstdint>
#include <map>
#include <mutex>

namespace sconce {

// Shared by all frames of a plan. Written when a choice is made.
class TimedSteps {
 public:
  // `state`: index of the step's state. Of several forms of operands, the last one stays.
  void note(uint32_t state, TimedChoices::Times times) {
    const std::lock_guard<std::mutex> lock(mutex_);
    times_[state] = times;
  }
  std::map<uint32_t, TimedChoices::Times> all() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return times_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint32_t, TimedChoices::Times> times_;
};

}  // namespace sconce
