// The loss and the metrics of a model on data, added up batch by batch and process by process.
#pragma once

#include "tools/sconce/train/metric.h"

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sconce::cli {

class Evaluation {
 public:
  // `targets`: the kind of each target.
  Evaluation(const std::vector<std::string>& metrics, const std::vector<TargetKind>& targets);

  // `loss`: the mean of a batch. Throws UserError if there is no result or no target with a metric's number.
  void add(double loss, const c10::IValue& output, const std::vector<c10::IValue>& targets);

  // Returns all that was added up, float64 tensors: of the loss, then of each metric. Their sizes depend on the data.
  std::vector<at::Tensor> state() const;
  // Adds the state of another process.
  void merge(const std::vector<at::Tensor>& state);

  double loss() const { return loss_sum_ / examples_; }
  // Returns the name and the value of each metric.
  std::vector<std::pair<std::string, double>> metrics() const;

 private:
  double loss_sum_ = 0;
  double examples_ = 0;
  std::vector<std::pair<std::string, std::unique_ptr<Metric>>> metrics_;
};

}  // namespace sconce::cli
