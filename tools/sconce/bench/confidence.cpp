#include "tools/sconce/bench/confidence.h"

#include <algorithm>
#include <cmath>

namespace sconce::cli {

std::optional<Interval> interval_of_median(std::vector<double> ratios) {
  const size_t count = ratios.size();
  // Each ratio is below the median with probability 1/2. If fewer than `outside` are, which has a probability of at most
  // 2.5 %, the median is below the interval; above it likewise.
  double probability = std::pow(0.5, static_cast<double>(count));  // that exactly `outside` are below the median
  double at_most = probability;
  size_t outside = 0;
  while (at_most <= 0.025) {
    probability *= static_cast<double>(count - outside) / static_cast<double>(outside + 1);
    at_most += probability;
    ++outside;
  }
  if (outside == 0) {
    return std::nullopt;
  }
  std::ranges::sort(ratios);
  return Interval{ratios[outside - 1], ratios[count - outside]};
}

std::vector<double> ratios_of_rounds(const std::vector<double>& times, const std::vector<double>& others) {
  std::vector<double> ratios;
  for (size_t round = 0; round < std::min(times.size(), others.size()); ++round) {
    ratios.push_back(times[round] / others[round]);
  }
  return ratios;
}

}  // namespace sconce::cli
