#include "tools/sconce/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sconce::cli {
namespace {

// From `first` at 0 to `last` at 1, with the shape of half a cosine.
double along_cosine(double first, double last, double at) {
  return last + (first - last) * (1 + std::cos(std::numbers::pi * at)) / 2;
}

// As torch.optim.lr_scheduler.OneCycleLR with its defaults.
double one_cycle(double step, double steps) {
  constexpr double kFirst = 1.0 / 25;
  constexpr double kLast = kFirst / 1e4;
  const double top = 0.3 * steps - 1;
  return step <= top ? along_cosine(kFirst, 1, step / top) : along_cosine(1, kLast, (step - top) / (steps - 1 - top));
}

}  // namespace

double Schedule::share_of(size_t step, size_t steps) const {
  if (step < warmup) {
    return static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  const size_t done = step - warmup;
  const size_t all = std::max<size_t>(steps, warmup + 1) - warmup;
  const double at = static_cast<double>(done) / static_cast<double>(all);
  return kind == "cosine"        ? along_cosine(1, least, at)
         : kind == "linear"      ? 1 + (least - 1) * at
         : kind == "exponential" ? std::pow(least, at)
         : kind == "step"        ? std::pow(0.1, 3 * done / all)
         : kind == "one_cycle"   ? one_cycle(static_cast<double>(done), static_cast<double>(all))
                                 : 1;
}

}  // namespace sconce::cli
