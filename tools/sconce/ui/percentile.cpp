#include "tools/sconce/ui/percentile.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sconce::ui {

double percentile(std::vector<double> samples, double share) {
  if (samples.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double rank = std::ceil(share * static_cast<double>(samples.size()));
  const size_t index = std::min(samples.size() - 1, static_cast<size_t>(std::max(rank, 1.0)) - 1);
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(index), samples.end());
  return samples[index];
}

}  // namespace sconce::ui
