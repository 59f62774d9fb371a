// Metrics: numbers that tell how good a model's results are.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace sconce::cli {

inline constexpr std::array kMetricNames = {"accuracy", "top5", "f1", "auc", "mae", "rmse", "r2"};

// A --metric, "accuracy", or "accuracy@1" of another result of the model than the first.
struct MetricName {
  std::string name;
  size_t result = 0;
};
// Throws UserError if what follows the @ is no number.
MetricName metric_name(const std::string& text);

// Adds up the examples of any number of batches and processes.
class Metric {
 public:
  virtual ~Metric() = default;

  // Throws UserError if the metric has no meaning for these sizes.
  virtual void add(const at::Tensor& output, const at::Tensor& target) = 0;
  // Returns what it has added up: float64. Its sizes depend on the data.
  virtual at::Tensor state() const = 0;
  // Adds what another one has added up.
  virtual void merge(const at::Tensor& state) = 0;
  // Returns NaN where it has no value, for example for no examples.
  virtual double value() const = 0;
};

// How targets tell classes.
enum class TargetKind : uint8_t {
  kClasses,  // output [N, classes, ...], targets integers [N, ...] or probabilities of the output's sizes
  kBinary,   // output and targets of the same sizes: a logit above 0 is a yes, and so is a target above 0.5
};

// Throws UserError, with the nearest names, if there is none of that name. `text`: as the user gave it, for messages too.
std::unique_ptr<Metric> make_metric(const std::string& text, TargetKind targets);

bool is_higher_better(const std::string& metric);

}  // namespace sconce::cli
