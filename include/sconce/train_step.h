// TrainStep: forward, loss, backward and the optimizer's step in one call.
#pragma once

#include <sconce/captured_optimizer.h>
#include <sconce/data_parallel.h>
#include <sconce/explanation.h>
#include <sconce/module.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace sconce {

class TrainOptions {
 public:
  // The method of the module that computes the result. The default is "forward".
  TrainOptions& method(std::string name);
  // Scales gradients so that their norm together, of order 2, is at most this, before the optimizer steps.
  TrainOptions& clip_norm(double norm);
  // Clamps each element of each gradient to [-value, value], before the optimizer steps.
  TrainOptions& clip_value(double value);
  // Adds up the gradients of `calls` calls, of the mean of their losses, and steps in the last of them. The default is 1.
  TrainOptions& accumulate(size_t calls);
  // Computes forward and loss under autocast to this dtype, bfloat16 or float16, on the device of the first parameter.
  TrainOptions& autocast(c10::ScalarType dtype);
  // Leaves the gradients of the last step in the parameters. By default they are undefined after a step, which saves the
  // memory of all of them.
  TrainOptions& keep_gradients(bool on);
  // Trains together with other ranks: the step begins with rank 0's parameters and buffers, and updates with the mean of all
  // ranks' gradients, whatever runs the call on each rank. Every rank makes as many calls. Kernels are compiled in the first
  // calls, and not in the background, so that all ranks round alike.
  TrainOptions& data_parallel(const DataParallel& ranks);
  // Lets batch norms, in training mode, take mean and variance of all ranks' batches. By default each rank takes those of
  // its own batch, as running statistics too: keep those of rank 0. Without other ranks, has no effect.
  TrainOptions& synchronize_batch_norm(bool on);
  // Lets each rank update a part of the parameters, of equal size, and keep the optimizer's states of this part alone. The
  // optimizer's groups hold the parts, as tensors of one dimension, from the first step on; `TrainStep::unshard_optimizer`
  // gives the parameters and whole states back. Without other ranks, has no effect.
  TrainOptions& shard_optimizer(bool on);

  const std::string& method() const { return method_; }
  std::optional<double> clip_norm() const { return clip_norm_; }
  std::optional<double> clip_value() const { return clip_value_; }
  size_t accumulate() const { return accumulate_; }
  std::optional<c10::ScalarType> autocast() const { return autocast_; }
  bool keep_gradients() const { return keep_gradients_; }
  const std::optional<DataParallel>& data_parallel() const { return data_parallel_; }
  bool synchronize_batch_norm() const { return synchronize_batch_norm_; }
  bool shard_optimizer() const { return shard_optimizer_; }

 private:
  std::string method_ = "forward";
  std::optional<double> clip_norm_;
  std::optional<double> clip_value_;
  size_t accumulate_ = 1;
  std::optional<c10::ScalarType> autocast_;
  bool keep_gradients_ = false;
  std::optional<DataParallel> data_parallel_;
  bool synchronize_batch_norm_ = false;
  bool shard_optimizer_ = false;
};

// A bucket of gradients that a plan sums over ranks while backward goes on.
struct ReductionExplanation {
  size_t bytes = 0;         // that are summed
  size_t parameters = 0;    // whose gradients they are
  size_t begins_after = 0;  // how many of the plan's nodes
  size_t waits_after = 0;   // the same for the end of the sum
};

struct TrainExplanation {
  uint64_t by_plan = 0;          // calls whose forward, loss and backward a plan ran
  uint64_t updated_by_plan = 0;  // the calls among them whose plan also ran the optimizer's step
  uint64_t eager = 0;            // the others
  // Why calls were not run by plan, and how often.
  std::vector<std::pair<std::string, uint64_t>> reasons;
  // Why a plan could not leave sizes open. Each size then has a plan of its own, recorded on its second call.
  std::vector<std::string> why_sizes_are_fixed;
  std::vector<Explanation> plans;                // of forward, loss and backward
  std::vector<ReductionExplanation> reductions;  // of the plan that ran last; none without other ranks
  OptimizerExplanation optimizer;
  size_t state_bytes = 0;  // of the optimizer, on this rank; 0 for an optimizer that is not sharded
};

// Trains a module. A call with arguments of a kind runs forward, loss and backward and records them; later calls run the
// recorded graph as one plan. The first kind is recorded at once, a later one on its second call; arguments
// of other sizes than the first ones at once, with these sizes left open, so that a batch of any size runs the same plan.
// Each call checks what a plan assumes: sizes, strides and dtypes of arguments, parameters and the optimizer's
// states, hooks of parameters, the module's attributes, the state of the thread. Buffers are updated as in eager training.
//
// The plan also clips the gradients and updates the parameters, if it need not add up or keep gradients and
// CapturedOptimizer knows the optimizer. Each gradient is freed where its parameter is updated. Otherwise a
// CapturedOptimizer takes the step.
//
// torch::optim::LBFGS evaluates loss and gradients several times in a step, and moves the parameters in between. Each
// evaluation is a run of forward, loss and backward on the call's arguments. The step returns the first loss, and `explain`
// counts the evaluations. If one of them throws, the parameters are those that it was given.
//
// TorchScript may read sizes and compute with them. A loss function in C++ leaves them open if it calls operators
// (at::mse_loss) and asks for no size; where it reads one (torch::nn::functional::mse_loss compares the sizes of its
// arguments), each size has a plan of its own. `explain` has the reason.
//
// Numbers that the loss function takes from its surroundings are constants of the recorded graph. A step that reads an
// element of a tensor on the host (`.item()`), or whose results' sizes depend on elements, runs eagerly. `explain` has the
// reason.
//
// One thread at a time may call.
class TrainStep {
 public:
  // Returns a scalar tensor of the module's result and the target.
  using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;
  // The same for modules whose result is no tensor, and for several targets.
  using GeneralLoss = std::function<at::Tensor(const c10::IValue& output, const std::vector<c10::IValue>& targets)>;

  // `optimizer` must outlive this, and hold the module's parameters that are to be trained. Throws c10::Error if the module
  // lacks the method; the message lists those it has. Also throws for options that LBFGS cannot have: clipping, `accumulate`
  // and other ranks.
  TrainStep(Module module, Loss loss, torch::optim::Optimizer& optimizer, const TrainOptions& options = {});
  TrainStep(Module module, GeneralLoss loss, torch::optim::Optimizer& optimizer, const TrainOptions& options = {});
  ~TrainStep();

  // Runs a step. Returns the loss of this rank's batch, without history. Throws what the module, the loss or the optimizer
  // throws; parameters are then as before the step, and gradients are undefined. If it was memory that the step lacked, some
  // parameters may have been updated.
  at::Tensor operator()(const std::vector<c10::IValue>& inputs, const std::vector<c10::IValue>& targets);
  // The same, where `share` is what the loss counts in the step's: 1 / (calls * ranks) by default. For the mean over
  // examples of batches that differ, how many of the step's examples are in this batch.
  at::Tensor operator()(const std::vector<c10::IValue>& inputs, const std::vector<c10::IValue>& targets, double share);
  // A call of a rank that has no batch for it, while others may have one. Returns how many ranks had a batch in the step, if
  // this was its last call. If none had, nothing is updated.
  std::optional<size_t> skip();
  // For a rank that has no batch left: skips until no rank has one. Requires that the last step is complete. Returns how
  // many steps others have made.
  size_t join();
  // Gives a sharded optimizer its parameters and whole states back, on every rank, until the next step: to save it, or to
  // load what any number of ranks has saved. All ranks call it.
  void unshard_optimizer();

  TrainExplanation explain() const;
  // Waits until the background thread has no compile of this step left.
  void wait_for_compiles() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sconce
