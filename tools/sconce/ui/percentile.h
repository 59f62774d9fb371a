// Order statistics of measured times.
#pragma once

#include <vector>

namespace sconce::ui {

// Returns the value that `share` (0 to 1) of the samples do not exceed: the nearest sample, not interpolated. NaN if there
// are none.
double percentile(std::vector<double> samples, double share);

inline double median(const std::vector<double>& samples) { return percentile(samples, 0.5); }

}  // namespace sconce::ui
