// Schedules of the learning rate.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace sconce::cli {

inline constexpr std::array kScheduleNames = {"constant", "cosine", "linear", "exponential", "step", "one_cycle"};

// Learning rates are shares of the one that --lr names, the same for all groups of parameters.
struct Schedule {
  std::string kind = "constant";
  size_t warmup = 0;  // steps in which the share rises, evenly, to 1
  double least = 0;   // the share at the end of cosine, linear and exponential

  // Returns the share of step `step` of `steps`, counted from 0.
  double share_of(size_t step, size_t steps) const;
};

}  // namespace sconce::cli
