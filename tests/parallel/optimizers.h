// Optimizers and a loss for tests of ranks.
#pragma once

#include "tests/training/two_trainings.h"

#include <ATen/ATen.h>

#include <vector>

namespace sconce::testing {

struct NamedOptimizer {
  const char* name;
  MakeOptimizer make;
};
// One of each class that sconce knows.
std::vector<NamedOptimizer> optimizers();

inline at::Tensor mse(const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); }

}  // namespace sconce::testing
