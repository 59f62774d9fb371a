// How sure a measured ratio is.
#pragma once

#include <optional>
#include <vector>

namespace sconce::cli {

struct Interval {
  double low = 0;
  double high = 0;

  bool contains(double value) const { return low <= value && value <= high; }
};

// Returns an interval that holds the median of the ratios with a probability of at least 95 %, whatever their distribution:
// the sign test's, between two of the sorted ratios (Conover, Practical Nonparametric Statistics, 3.2). Ratios of
// neighboring rounds depend on each other a little, which the test leaves out. Returns nothing for fewer than 6 ratios.
std::optional<Interval> interval_of_median(std::vector<double> ratios);

// Returns `times` / `others`, round by round. What else the machine does in a round meets both alike.
std::vector<double> ratios_of_rounds(const std::vector<double>& times, const std::vector<double>& others);

}  // namespace sconce::cli
