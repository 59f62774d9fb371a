#include "tools/sconce/train/evaluation.h"

#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/loss.h"

#include <ATen/ops/tensor.h>

namespace sconce::cli {

Evaluation::Evaluation(const std::vector<std::string>& metrics, const std::vector<TargetKind>& targets) {
  for (const std::string& text : metrics) {
    const size_t result = metric_name(text).result;
    if (result >= targets.size()) {
      throw UserError("--metric " + text + ": there is no target " + std::to_string(result) + "; the data have " +
                      std::to_string(targets.size()) + ", counted from 0");
    }
    metrics_.emplace_back(text, make_metric(text, targets[result]));
  }
}

void Evaluation::add(double loss, const c10::IValue& output, const std::vector<c10::IValue>& targets) {
  const auto examples = static_cast<double>(targets.front().toTensor().size(0));
  loss_sum_ += loss * examples;
  examples_ += examples;
  if (!metrics_.empty()) {
    const std::vector<at::Tensor> outputs = tensors_of_output(output);
    for (const auto& [text, metric] : metrics_) {
      const size_t result = metric_name(text).result;
      if (result >= outputs.size()) {
        throw UserError("--metric " + text + ": there is no result " + std::to_string(result) + "; the model returns " +
                        std::to_string(outputs.size()) + ", counted from 0");
      }
      metric->add(outputs[result].cpu(), targets[result].toTensor().cpu());
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
