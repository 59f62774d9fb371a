#include "tools/sconce/train/curves.h"

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
  double value;
};
struct Curve {
  const char* style;  // its class
  std::string name;
  std::vector<CurvePoint> points;
};

class Plot {
 public:
  Plot(std::string title, std::vector<Curve> all, size_t steps)
      : title_(std::move(title)), all_(std::move(all)), steps_(static_cast<double>(std::max<size_t>(steps, 2))) {
    double least = INFINITY;
    double most = -INFINITY;
    for (const Curve& series : all_) {
      for (const CurvePoint& point : series.points) {
        least = std::min(least, point.value);
        most = std::max(most, point.value);
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
    std::string drawn = element("style", kCurveStyle) + element("title", escape_html(title_)) + "\n" + grid();
    double key = kLeft + 10;
    for (const Curve& series : all_) {
      drawn += line(series) + text_at(key + 24, kTop - 10, "start", series.name) + "<polyline class=\"" + series.style +
               "\" points=\"" + pair(key, kTop - 14) + " " + pair(key + 18, kTop - 14) + "\"/>\n";
      key += 50 + 7 * static_cast<double>(series.name.size());
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

  double height_of(double value) const { return is_logarithmic_ ? std::log10(value) : value; }
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

  std::vector<double> values_of_axis() const {
    if (!is_logarithmic_) {
      return round_numbers(min_, max_, 5);
    }
    std::vector<double> values;
    for (double decade = std::floor(min_); decade <= max_; ++decade) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double value = std::pow(10, decade) * digit;
        if (height_of(value) >= min_ && height_of(value) <= max_ && (digit == 1 || max_ - min_ < 3)) {
          values.push_back(value);
        }
      }
    }
    return values;
  }

  std::string grid() const {
    std::string drawn;
    for (const double value : values_of_axis()) {
      const double y = y_of(height_of(value));
      drawn += "<line class=\"grid\" x1=\"" + number(kLeft) + "\" x2=\"" + number(kRight) + "\" y1=\"" + number(y) +
               "\" y2=\"" + number(y) + "\"/>" + text_at(kLeft - 8, y + 4, "end", number(value)) + "\n";
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
      points += (points.empty() ? "" : " ") + pair(x_of(point.step), y_of(height_of(point.value)));
    }
    return std::string("<polyline class=\"") + series.style + "\" points=\"" + points + "\"/>\n";
  }

  const std::string title_;
  const std::vector<Curve> all_;
  const double steps_;
  bool is_logarithmic_ = false;
  double min_ = 0;  // logarithms if the axis is logarithmic
  double max_ = 0;
};

// Returns a point for each epoch that has a value, where the epoch ends.
std::vector<CurvePoint> points_of(const TrainHistory& history, const Series& series) {
  std::vector<CurvePoint> points;
  for (size_t epoch = 0; epoch < series.values.size(); ++epoch) {
    if (std::isfinite(series.values[epoch])) {
      points.push_back({history.ends[epoch], series.values[epoch]});
    }
  }
  return points;
}

// The mean loss of an epoch is in its middle.
std::vector<CurvePoint> points_of_epoch_losses(const TrainHistory& history) {
  std::vector<CurvePoint> points;
  double begin = 0;
  for (const double loss : history.losses_of_epochs()) {
    const bool has_ended = points.size() < history.ends.size();
    const double end = has_ended ? history.ends[points.size()] : static_cast<double>(history.steps.count);
    points.push_back({(begin + 1 + end) / 2, loss});
    begin = end;
  }
  return points;
}

std::string drawn_curves(const std::string& title, std::vector<Curve> all, const TrainHistory& history) {
  std::erase_if(all, [](const Curve& series) { return series.points.empty(); });
  return Plot(title, std::move(all), history.steps.count).svg();
}

}  // namespace

std::string loss_svg(const TrainHistory& history) {
  std::vector<Curve> all = {{"steps", "steps", {}}, {"epochs", "epochs", points_of_epoch_losses(history)}};
  for (const ThinCurve::Point& point : history.steps.points()) {
    all[0].points.push_back({point.at, point.mean});
  }
  if (const Series* validation = history.find(TrainHistory::kValidationLoss)) {
    all.push_back({"validation", "validation", points_of(history, *validation)});
  }
  return drawn_curves("Loss by step", std::move(all), history);
}

std::vector<std::pair<std::string, std::string>> metric_svgs(const TrainHistory& history) {
  std::vector<std::pair<std::string, std::string>> images;
  for (const Series& series : history.epochs) {
    std::vector<CurvePoint> points = points_of(history, series);
    if (series.name != TrainHistory::kLoss && series.name != TrainHistory::kValidationLoss && !points.empty()) {
      images.emplace_back(series.name,
                          drawn_curves(series.name + " by step", {{"validation", series.name, std::move(points)}}, history));
    }
  }
  return images;
}

std::string epochs_csv(const TrainHistory& history) {
  constexpr int kDigits = 9;  // a float's
  std::string csv = "epoch,step";
  for (const Series& series : history.epochs) {
    csv += "," + series.name;
  }
  for (size_t epoch = 0; epoch < history.ends.size(); ++epoch) {
    csv += "\n" + std::to_string(epoch + 1) + "," + std::to_string(static_cast<size_t>(history.ends[epoch]));
    for (const Series& series : history.epochs) {
      csv += "," + (std::isnan(series.values[epoch]) ? "" : format_number(series.values[epoch], kDigits));
    }
  }
  return csv + "\n";
}

}  // namespace sconce::cli
