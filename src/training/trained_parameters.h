// TrainedParameters: what an optimizer trains.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <vector>

namespace sconce {

// The parameters that an optimizer trains, each once, and the parameter group of each.
struct TrainedParameters {
  std::vector<at::Tensor> tensors;
  std::vector<size_t> groups;
  bool has_repeated = false;  // a parameter that is in the optimizer twice is updated twice
};
// Throws c10::Error if there is none.
TrainedParameters trained_parameters(torch::optim::Optimizer& optimizer);

}  // namespace sconce
