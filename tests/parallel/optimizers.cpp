#include "tests/parallel/optimizers.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>

#include <utility>

namespace sconce::testing {

std::vector<NamedOptimizer> optimizers() {
  using Tensors = std::vector<at::Tensor>;
  using namespace torch::optim;
  return {
      {"SGD with momentum", sgd},
      {"Adam", adam},
      {"Adam, amsgrad",
       [](Tensors parameters) { return std::make_unique<Adam>(std::move(parameters), AdamOptions(0.01).amsgrad(true)); }},
      {"AdamW", [](Tensors parameters) { return std::make_unique<AdamW>(std::move(parameters), AdamWOptions(0.01)); }},
      {"RMSprop",
       [](Tensors parameters) {
         return std::make_unique<RMSprop>(std::move(parameters), RMSpropOptions(0.001).eps(1e-3).momentum(0.5));
       }},
      {"Adagrad",
       [](Tensors parameters) { return std::make_unique<Adagrad>(std::move(parameters), AdagradOptions(0.01)); }}};
}

}  // namespace sconce::testing
