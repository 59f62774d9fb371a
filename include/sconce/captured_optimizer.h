// CapturedOptimizer: LibTorch's optimizers, with the updates of all parameters as one plan.
//
//   torch::optim::Adam adam(parameters);
//   sconce::CapturedOptimizer optimizer(adam);
//   optimizer.zero_grad();
//   loss.backward();
//   optimizer.step();
#pragma once

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace sconce {

// Counts the steps of an optimizer by who ran them.
struct OptimizerExplanation {
  std::string optimizer;  // "Adam"; the name of the type if no plan serves it
  std::string why_eager;  // why no step is captured; empty if steps may be
  uint64_t steps = 0;     // that were begun
  uint64_t captured_steps = 0;
  uint64_t captured_updates = 0;  // of parameters, in captured steps
  struct EagerSteps {
    std::string reason;
    uint64_t steps = 0;
  };
  std::vector<EagerSteps> eager_steps;  // each reason once
  std::vector<Explanation> plans;       // one for each set of options that parameter groups have had
};
// Returns the explanation in lines for people, the plans in short.
std::string to_string(const OptimizerExplanation& explanation);

// Steps SGD, Adam, AdamW, RMSprop and Adagrad of LibTorch by compiled kernels that write in place. The optimizer keeps its
// parameter groups, options and states: change, save, load or step it in between, with or without this object. Every step
// reads them afresh. Results are torch::optim's, rounded as docs/debugging.md says of compiled kernels; with
// Options::exact they have the same bits.
//
// A step is eager, `optimizer.step()`, and explain() has the reason, if
//   - the optimizer is of another class, also one derived from these;
//   - a parameter, its gradient or its state is anything but a dense tensor of floating-point numbers on the CPU, or they
//     differ in sizes or dtype;
//   - a transform (functorch, tracing) is active.
//
// As with torch::optim, one thread at a time may call. An exception of an operator leaves the parameters before it updated,
// as in an eager step; the step counts of its parameter group then include the step; later groups' counts do not.
class CapturedOptimizer {
 public:
  using LossClosure = std::function<at::Tensor()>;

  // The optimizer must outlive this object. `options`: when kernels are compiled (CompileMode), exactness and passes; a step
  // runs operators one by one until its kernels are compiled.
  explicit CapturedOptimizer(torch::optim::Optimizer& optimizer, const Options& options = {});
  // Holds the optimizer weakly. Once it was destroyed, every call but `explain` throws c10::Error.
  explicit CapturedOptimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer, const Options& options = {});
  ~CapturedOptimizer();
  CapturedOptimizer(CapturedOptimizer&&) noexcept;
  CapturedOptimizer& operator=(CapturedOptimizer&&) noexcept;

  // Calls the closure, if there is one, with gradients enabled, then updates the parameters that have a gradient. Returns
  // the closure's loss; without a closure, an undefined tensor. Throws what the closure, or an operator, throws.
  at::Tensor step(const LossClosure& closure = nullptr);
  // Like `step` without a closure, but where the step would be eager, changes nothing and returns the reason.
  std::optional<std::string> try_step();
  void zero_grad(bool set_to_none = true);
  OptimizerExplanation explain() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sconce
