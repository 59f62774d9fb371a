#include "tools/sconce/train/history.h"

#include <algorithm>
#include <cmath>

namespace sconce::cli {

void ThinCurve::add(double value) {
  if (count % width == 0) {
    if (sums.size() == kMostPoints) {
      for (size_t i = 0; i < kMostPoints / 2; ++i) {
        sums[i] = sums[2 * i] + sums[2 * i + 1];
      }
      sums.resize(kMostPoints / 2);
      width *= 2;
    }
    sums.push_back(0);
  }
  sums.back() += value;
  ++count;
}

std::vector<ThinCurve::Point> ThinCurve::points() const {
  std::vector<Point> points;
  for (size_t i = 0; i < sums.size(); ++i) {
    const size_t begin = i * width;
    const size_t end = std::min(count, begin + width);
    points.push_back({static_cast<double>(begin + 1 + end) / 2, sums[i] / static_cast<double>(end - begin)});
  }
  return points;
}

void TrainHistory::add_step(double loss) {
  first_loss = steps.count == 0 ? loss : first_loss;
  last_loss = loss;
  steps.add(loss);
  epoch_sum += loss;
  ++epoch_steps;
}

void TrainHistory::end_epoch() {
  const double loss = epoch_sum / static_cast<double>(epoch_steps);
  ends.push_back(static_cast<double>(steps.count));
  for (Series& series : epochs) {
    series.values.resize(ends.size(), std::numeric_limits<double>::quiet_NaN());
  }
  set(kLoss, /*higher_is_better=*/false, loss);
  epoch_sum = 0;
  epoch_steps = 0;
}

void TrainHistory::set(const std::string& name, bool higher_is_better, double value) {
  auto found = std::find_if(epochs.begin(), epochs.end(), [&](const Series& series) { return series.name == name; });
  if (found == epochs.end()) {
    found = epochs.insert(
        epochs.end(), {name, higher_is_better, std::vector<double>(ends.size(), std::numeric_limits<double>::quiet_NaN())});
  }
  found->values.back() = value;
}

const Series* TrainHistory::find(const std::string& name) const {
  const auto found = std::find_if(epochs.begin(), epochs.end(), [&](const Series& series) { return series.name == name; });
  return found == epochs.end() ? nullptr : &*found;
}

std::vector<double> TrainHistory::losses_of_epochs() const {
  std::vector<double> losses = epochs.front().values;
  if (epoch_steps > 0) {
    losses.push_back(epoch_sum / static_cast<double>(epoch_steps));
  }
  return losses;
}

BestEpoch best_epoch(const Series* series) {
  BestEpoch best;
  for (size_t epoch = 0; series != nullptr && epoch < series->values.size(); ++epoch) {
    const double value = series->values[epoch];
    if (!std::isnan(value) && (!best.is_known() || series->is_better(value, best.value))) {
      best = {epoch, value};
    }
  }
  return best;
}

}  // namespace sconce::cli
