// What a training has shown so far.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace sconce::cli {

// A number of each epoch.
struct Series {
  std::string name;  // "loss", "validation_loss", or a metric's
  bool higher_is_better = false;
  std::vector<double> values;  // NaN where it was not measured

  bool is_better(double value, double than) const { return higher_is_better ? value > than : value < than; }
};

// The curve of any number of values: means of neighbors, twice as many of them whenever there would be too many points.
struct ThinCurve {
  static constexpr size_t kMostPoints = 1024;

  size_t width = 1;  // values of a point
  size_t count = 0;  // values
  std::vector<double> sums;

  struct Point {
    double at = 0;  // the middle of its values, counted from 1
    double mean = 0;
  };

  void add(double value);
  std::vector<Point> points() const;
};

struct TrainHistory {
  static constexpr const char* kLoss = "loss";
  static constexpr const char* kValidationLoss = "validation_loss";

  double first_loss = std::numeric_limits<double>::quiet_NaN();
  double last_loss = std::numeric_limits<double>::quiet_NaN();
  ThinCurve steps;
  // Of the epoch under way.
  double epoch_sum = 0;
  size_t epoch_steps = 0;
  // Of the epochs that ended.
  std::vector<double> ends;  // the number of the last step of each
  std::vector<Series> epochs{{kLoss}};

  void add_step(double loss);
  // Ends the epoch under way. All series get a value, NaN until `set`.
  void end_epoch();
  // Gives a series the value of the epoch that has just ended.
  void set(const std::string& name, bool higher_is_better, double value);

  // Returns null if there is none.
  const Series* find(const std::string& name) const;
  // Returns the mean loss of each epoch, and of the steps of the one under way.
  std::vector<double> losses_of_epochs() const;
};

struct BestEpoch {
  size_t epoch = 0;                                         // counted from 0
  double value = std::numeric_limits<double>::quiet_NaN();  // NaN: no epoch has a value
  bool is_known() const { return value == value; }
};
// Returns the first of the best values. `series` may be null.
BestEpoch best_epoch(const Series* series);

}  // namespace sconce::cli
