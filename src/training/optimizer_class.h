// OptimizerClass: what differs between the classes of optimizers that sconce knows, apart from their updates
// (update_rule.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sconce {

struct OptimizerClass {
  using VisitTensor = std::function<void(const char* name, at::Tensor& tensor)>;
  using VisitOption = std::function<double(const char* name)>;  // returns the option's value

  const char* name;
  std::unique_ptr<torch::optim::Optimizer> (*make)(std::vector<torch::optim::OptimizerParamGroup> groups);
  void (*set_options)(torch::optim::OptimizerOptions& options, const VisitOption& value);
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
  // Visits all tensors that a state may have, in the same order for each; those that it has not are undefined.
  void (*visit_tensors)(torch::optim::OptimizerParamState& state, const VisitTensor& visit);
  int64_t* (*steps)(torch::optim::OptimizerParamState& state);  // null for a class that does not count them
};

// Throws c10::Error if there is no such class: SGD, Adam, AdamW, RMSprop, Adagrad.
const OptimizerClass& optimizer_class(const std::string& name);

}  // namespace sconce
