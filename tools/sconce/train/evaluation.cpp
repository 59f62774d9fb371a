#include "tools/sconce/train/evaluation.h"

#include "tools/sconce/train/loss.h"

#include <ATen/ops/tensor.h>

namespace sconce::cli {

Evaluation::Evaluation(const std::vector<std::string>& metrics, TargetKind targets) {
  for (const std::string& name : metrics) {
    metrics_.emplace_back(name, make_metric(name, targets));
  }
}

void Evaluation::add(double loss, const c10::IValue& output, const std::vector<c10::IValue>& targets) {
  const at::Tensor& target = targets.front().toTensor();
  const auto examples = static_cast<double>(target.size(0));
  loss_sum_ += loss * examples;
  examples_ += examples;
  if (!metrics_.empty()) {
    const at::Tensor first = tensors_of_output(output).front();
    for (const auto& [name, metric] : metrics_) {
      metric->add(first, target);
    }
  }
}

std::vector<at::Tensor> Evaluation::state() const {
  std::vector<at::Tensor> state = {at::tensor({loss_sum_, examples_}, at::kDouble)};
  for (const auto& [name, metric] : metrics_) {
    state.push_back(metric->state());
  }
  return state;
}

void Evaluation::merge(const std::vector<at::Tensor>& state) {
  const double* const sums = state.front().const_data_ptr<double>();
  loss_sum_ += sums[0];
  examples_ += sums[1];
  for (size_t i = 0; i < metrics_.size(); ++i) {
    metrics_[i].second->merge(state[i + 1]);
  }
}

std::vector<std::pair<std::string, double>> Evaluation::metrics() const {
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [name, metric] : metrics_) {
    values.emplace_back(name, metric->value());
  }
  return values;
}

}  // namespace sconce::cli
