#include "tools/sconce/train/loss_curve.h"

#include "report/number_format.h"
#include "tools/sconce/report/html.h"

#include <algorithm>
#include <cmath>

namespace sconce::cli {
namespace {

constexpr const char* kCurveStyle = R"(
.loss { --back: #ffffff; --soft: #59636e; --rule: #d5dae0; --steps: #8ab8da; --epochs: #0072b2; --validation: #d55e00; }
@media (prefers-color-scheme: dark) {
  .loss { --back: #15181c; --soft: #a3abb5; --rule: #3a4149; --steps: #38637d; --epochs: #56b4e9; --validation: #ff8f4a; }
}
.loss { background: var(--back); } .loss text { fill: var(--soft); font: 12px system-ui, sans-serif; } .loss .grid { stroke: var(--rule); }
.loss polyline { fill: none; stroke-width: 1.2; } .steps { stroke: var(--steps); }
.loss .epochs { stroke: var(--epochs); stroke-width: 2.4; } .loss .validation { stroke: var(--validation); stroke-width: 2.4; }
)";

struct CurvePoint {
  double step;
  double loss;
};
struct Curve {
  const char* name;  // its class, too
  std::vector<CurvePoint> points;
};

class LossPlot {
 public:
  LossPlot(std::vector<Curve> all, size_t steps)
      : all_(std::move(all)), steps_(static_cast<double>(std::max<size_t>(steps, 2))) {
    double least = INFINITY;
    double most = -INFINITY;
    for (const Curve& series : all_) {
      for (const CurvePoint& point : series.points) {
        least = std::min(least, point.loss);
        most = std::max(most, point.loss);
      }
    }
    is_logarithmic_ = least > 0 && most / least > 20;
    min_ = height_of(least);
    max_ = height_of(most);
    const double room = std::max({(max_ - min_) * 0.05, std::abs(max_) * 1e-3, 1e-12});
    min_ -= room;
    max_ += room;
  }

  std::string svg() const {
    std::string drawn = element("style", kCurveStyle) + element("title", "Loss by step") + "\n" + grid();
    double key = kLeft + 10;
    for (const Curve& series : all_) {
      drawn += line(series) + text_at(key + 24, kTop - 10, "start", series.name) + "<polyline class=\"" + series.name +
               "\" points=\"" + pair(key, kTop - 14) + " " + pair(key + 18, kTop - 14) + "\"/>\n";
      key += 110;
    }
    return element("svg class=\"loss\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 360\" role=\"img\"", drawn) +
           "\n";
  }

 private:
  static constexpr double kLeft = 76;
  static constexpr double kRight = 744;
  static constexpr double kTop = 34;
  static constexpr double kBottom = 316;

  static std::string number(double value) { return format_number(value); }
  static std::string pair(double x, double y) { return number(x) + "," + number(y); }
  static std::string text_at(double x, double y, const char* anchor, const std::string& text) {
    return element("text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\"", escape_html(text));
  }

  double height_of(double loss) const { return is_logarithmic_ ? std::log10(loss) : loss; }
  double x_of(double step) const { return kLeft + (kRight - kLeft) * (step - 1) / (steps_ - 1); }
  double y_of(double height) const { return kBottom - (kBottom - kTop) * (height - min_) / (max_ - min_); }

  // Returns multiples of 1, 2 or 5 times a power of ten, about `count` of them.
  static std::vector<double> round_numbers(double least, double most, double count) {
    const double rough = (most - least) / count;
    const double decade = std::pow(10, std::floor(std::log10(rough)));
    const double gap = decade * (rough < 1.5 * decade ? 1 : rough < 3.5 * decade ? 2 : rough < 7.5 * decade ? 5 : 10);
    std::vector<double> numbers;
    for (double index = std::ceil(least / gap); index * gap <= most; ++index) {
      numbers.push_back(index * gap);
    }
    return numbers;
  }

  std::vector<double> losses_of_axis() const {
    if (!is_logarithmic_) {
      return round_numbers(min_, max_, 5);
    }
    std::vector<double> losses;
    for (double decade = std::floor(min_); decade <= max_; ++decade) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double loss = std::pow(10, decade) * digit;
        if (height_of(loss) >= min_ && height_of(loss) <= max_ && (digit == 1 || max_ - min_ < 3)) {
          losses.push_back(loss);
        }
      }
    }
    return losses;
  }

  std::string grid() const {
    std::string drawn;
    for (const double loss : losses_of_axis()) {
      const double y = y_of(height_of(loss));
      drawn += "<line class=\"grid\" x1=\"" + number(kLeft) + "\" x2=\"" + number(kRight) + "\" y1=\"" + number(y) +
               "\" y2=\"" + number(y) + "\"/>" + text_at(kLeft - 8, y + 4, "end", number(loss)) + "\n";
    }
    for (const double step : round_numbers(1, steps_, 6)) {
      if (step == std::floor(step)) {
        drawn += text_at(x_of(step), kBottom + 20, "middle", format_count(static_cast<uint64_t>(step))) + "\n";
      }
    }
    return drawn + text_at((kLeft + kRight) / 2, kBottom + 38, "middle", "step") + "\n";
  }

  std::string line(const Curve& series) const {
    std::string points;
    for (const CurvePoint& point : series.points) {
      points += (points.empty() ? "" : " ") + pair(x_of(point.step), y_of(height_of(point.loss)));
    }
    return std::string("<polyline class=\"") + series.name + "\" points=\"" + points + "\"/>\n";
  }

  const std::vector<Curve> all_;
  const double steps_;
  bool is_logarithmic_ = false;
  double min_ = 0;  // logarithms if the axis is logarithmic
  double max_ = 0;
};

// Returns the mean of losses[begin] to losses[end - 1], of those that there are.
double mean_of(const std::vector<double>& losses, size_t begin, size_t end) {
  end = std::min(losses.size(), end);
  double sum = 0;
  for (size_t i = begin; i < end; ++i) {
    sum += losses[i];
  }
  return sum / static_cast<double>(end - begin);
}

// Returns means of neighbors, so that there are at most `most` of them, each with the step in the middle.
std::vector<CurvePoint> thinned(const std::vector<double>& losses, size_t most) {
  const size_t neighbors = (losses.size() + most - 1) / most;
  std::vector<CurvePoint> points;
  for (size_t begin = 0; begin < losses.size(); begin += neighbors) {
    const size_t end = std::min(losses.size(), begin + neighbors);
    points.push_back({static_cast<double>(begin + 1 + end) / 2, mean_of(losses, begin, end)});
  }
  return points;
}

}  // namespace

double loss_of_epoch(const Training& training, size_t epoch) {
  const size_t begin = epoch * training.steps_per_epoch();
  return mean_of(training.history().losses, begin, begin + training.steps_per_epoch());
}

std::vector<double> losses_of_epochs(const Training& training) {
  std::vector<double> means;
  for (size_t epoch = 0; epoch * training.steps_per_epoch() < training.steps_done(); ++epoch) {
    means.push_back(loss_of_epoch(training, epoch));
  }
  return means;
}

std::string loss_csv(const Training& training) {
  constexpr int kDigits = 9;  // a float's
  const TrainHistory& history = training.history();
  std::string csv = "step,epoch,learning_rate,loss,validation_loss\n";
  for (size_t step = 0; step < history.losses.size(); ++step) {
    const size_t epoch = step / training.steps_per_epoch();
    const bool is_last = (step + 1) % training.steps_per_epoch() == 0;
    const bool is_validated =
        is_last && epoch < history.validation_losses.size() && !std::isnan(history.validation_losses[epoch]);
    csv += std::to_string(step + 1) + "," + std::to_string(epoch + 1) + "," +
           format_number(training.learning_rate_of(step), kDigits) + "," + format_number(history.losses[step], kDigits) +
           "," + (is_validated ? format_number(history.validation_losses[epoch], kDigits) : "") + "\n";
  }
  return csv;
}

std::string loss_svg(const Training& training) {
  constexpr size_t kPoints = 600;
  const TrainHistory& history = training.history();
  std::vector<Curve> all = {{"steps", thinned(history.losses, kPoints)}, {"epochs", {}}, {"validation", {}}};
  const std::vector<double> epochs = losses_of_epochs(training);
  for (size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    const size_t begin = epoch * training.steps_per_epoch();
    const size_t end = std::min(history.losses.size(), begin + training.steps_per_epoch());
    all[1].points.push_back({static_cast<double>(begin + 1 + end) / 2, epochs[epoch]});
    if (epoch < history.validation_losses.size() && std::isfinite(history.validation_losses[epoch])) {
      all[2].points.push_back({static_cast<double>(end), history.validation_losses[epoch]});
    }
  }
  std::erase_if(all, [](const Curve& series) { return series.points.empty(); });
  return LossPlot(std::move(all), history.losses.size()).svg();
}

}  // namespace sconce::cli
