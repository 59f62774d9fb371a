// A captured optimizer beside an equal one that steps by itself.
#pragma once

#include <sconce/captured_optimizer.h>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace sconce::testing {

using Tensors = std::vector<at::Tensor>;
using OptimizerPtr = std::shared_ptr<torch::optim::Optimizer>;

// A class of optimizers, with options.
struct OptimizerCase {
  std::string name;
  std::function<OptimizerPtr(Tensors)> make;
};
void PrintTo(const OptimizerCase& each, std::ostream* out);

template <typename Class, typename Settings>
OptimizerCase case_of(std::string name, Settings options) {
  return {std::move(name),
          [options](Tensors parameters) -> OptimizerPtr { return std::make_shared<Class>(std::move(parameters), options); }};
}
// Every class that is captured, with each of its options.
std::vector<OptimizerCase> all_optimizer_cases();

// Returns the tensors of a parameter's state, the number of its steps among them. Undefined ones are left out.
Tensors states_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
// Returns a leaf that requires a gradient, with the memory of the values.
at::Tensor parameter(const at::Tensor& values);
// Returns parameters of many sizes and layouts.
Tensors make_parameters();

// Two copies of the same parameters get the same gradients; one optimizer is captured, the other steps by itself.
class OptimizerPair {
 public:
  OptimizerPair(const OptimizerCase& of, Options options, Tensors parameters = make_parameters());

  // Gives each parameter but every `skip`th a gradient, and steps both optimizers.
  void step(uint64_t seed, size_t skip = 0);
  void expect_equal() const;
  void expect_all_captured() const;

  Tensors& own() { return own_; }
  Tensors& theirs() { return theirs_; }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }
  torch::optim::Optimizer& eager() { return *eager_; }
  CapturedOptimizer& captured() { return *captured_; }

 private:
  void expect_close(const at::Tensor& own, const at::Tensor& theirs) const;

  Tensors own_;
  Tensors theirs_;
  std::vector<int64_t> versions_;  // how far theirs were ahead of own in the beginning
  bool is_exact_;
  OptimizerPtr optimizer_;
  OptimizerPtr eager_;
  std::unique_ptr<CapturedOptimizer> captured_;
};

}  // namespace sconce::testing
