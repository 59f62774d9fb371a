// TrainTrace: forward, loss and backward of one kind of training step, and the optimizer's step where it may be, as one
// plan.
#pragma once

#include "executor/call_recording.h"
#include "executor/compiled_trace.h"
#include "trace/bound_tensors.h"
#include "training/parallel/gradient_buckets.h"
#include "training/parallel/optimizer_shards.h"
#include "training/step/place_reductions.h"
#include "training/step/step_update.h"

#include <sconce/module.h>
#include <sconce/train_step.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sconce {

class Tracer;

// The method of a module that a step trains.
struct TrainedMethod {
  Module module;
  std::string name;

  const Graph& graph() const { return module.method(name).graph(); }
  // Runs the module's hooks, too, if it is `forward`.
  c10::IValue operator()(std::vector<c10::IValue> arguments) const {
    return name == "forward" ? module.forward(std::move(arguments)) : module.run_method(name, std::move(arguments));
  }
};

// The arguments of a step: the inputs of the method, then the targets.
struct StepArguments : CallArguments {
  StepArguments(const std::vector<c10::IValue>& given, const std::vector<c10::IValue>& targets);

  size_t inputs;
};

// The results of a step.
struct StepResult {
  at::Tensor loss;                    // without history
  std::vector<at::Tensor> gradients;  // per leaf; undefined where none flows. None if the parameters are updated
  std::vector<std::pair<size_t, at::Tensor>> of_arguments;  // gradients of arguments that require one, by number
  bool is_updated = false;                                  // with gradients that were reduced
};

// What becomes of the gradients of a step.
struct StepEnding {
  torch::optim::Optimizer& optimizer;
  Clipping clipping;
  bool plans_update = false;                 // where they can
  at::Tensor seed;                           // the gradient of the loss, a number; undefined where that is 1
  std::shared_ptr<GradientBuckets> buckets;  // null if there are no other ranks
  std::shared_ptr<OptimizerShards> shards;   // null if every rank updates all parameters
  std::string group;                         // of ranks, in c10d's registry
};

// Returns the gradient of the loss that the number `seed`, a tensor on its device, stands for: in the loss's sizes and
// dtype.
at::Tensor seed_of(const at::Tensor& loss, const at::Tensor& seed);

class TrainTrace final : public CallRecording {
 public:
  // Runs forward, loss and backward with LibTorch's operators, and records them. `result` is what they gave. Returns the
  // trace; with a refusal if it cannot be replayed. `pattern`: of the arguments' sizes. `options`: of the plan.
  static std::shared_ptr<TrainTrace> record(const TrainedMethod& method, const Options& options,
                                            const TrainStep::GeneralLoss& loss, const StepArguments& arguments,
                                            const TrainedParameters& parameters, const SizePattern& pattern,
                                            const StepEnding& ending, StepResult& result);

  // Returns a trace of calls that cannot be recorded.
  static std::shared_ptr<TrainTrace> refused(const Module& module, const StepArguments& arguments,
                                             const TrainedParameters& parameters, const SizePattern& pattern,
                                             std::string reason);

  // Returns whether the trace is of such a call. Reads the optimizer's states for `run`. Requires that the tensors among the
  // arguments have the structure of those that were recorded, and sizes of the pattern.
  bool holds(const c10::ivalue::Object& module, const StepArguments& arguments, const TrainedParameters& parameters);
  bool is_ready() const override { return plan_ != nullptr && plan_->is_ready(); }
  // Requires that `is_ready` was false.
  std::string why_no_plan() const { return plan_ == nullptr ? refusal : plan_->why_no_plan(); }
  void explain(std::vector<Explanation>& plans) const;
  void wait_for_compile() const override;
  // Requires `is_ready`, and that `holds` was true for this call. `symbols`: of the pattern. Returns nothing, and changes
  // nothing, if the module reads other numbers from tensors than in the recorded call.
  std::optional<StepResult> run(const StepArguments& arguments, const std::vector<int64_t>& symbols);
  // Returns what gradients flow to: the parameters, and after them other leaves, which the optimizer does not know.
  const std::vector<at::Tensor>& leaves() const { return leaves_; }
  // Returns where the plan reduces the buckets; nothing if it does not, or is not compiled.
  std::vector<ReductionExplanation> reductions() const;
  // Returns how many parameters the plan updates.
  size_t updated_parameters() const { return update_ == nullptr ? 0 : update_->count(); }

 private:
  TrainTrace(const Module& module, const StepArguments& arguments, const SizePattern& of_sizes,
             const std::vector<at::Tensor>& parameters);
  // Adds the leaves that the loss depends on besides the parameters. `arguments`: tensors of the trace. Returns the leaves
  // that the call has made.
  std::vector<at::Tensor> add_other_leaves(const at::Tensor& loss, const std::vector<at::Tensor>& arguments);
  // Runs forward, loss and backward in the tracer's scope, and adds the outputs of its graph.
  void run_on_tracer(const TrainedMethod& method, const TrainStep::GeneralLoss& loss, const std::vector<c10::IValue>& traced,
                     const at::Tensor& seed, Tracer& tracer, StepResult& result);
  // Makes the optimizer's update, if it may be, a part of the plan: inputs of the graph, and passes that complete it.
  // `gradients`: those of the recorded call.
  TraceSettings::Complete end_with_update(Graph& graph, const StepEnding& ending, size_t symbols,
                                          const std::vector<at::Tensor>& arguments, const TrainedParameters& parameters,
                                          const std::vector<at::Tensor>& gradients, bool is_exact);
  // Runs the plan. Returns false, and changes nothing, if it reads other numbers than the recorded call.
  bool run_plan(torch::jit::Stack& stack) const;
  // Returns what the plan updates, if it updates anything.
  const TrainedParameters& updated(const TrainedParameters& parameters) const {
    return shards_ != nullptr ? shards_->segments() : parameters;
  }
  // Returns the tensors that the plan is given in a call, without the arguments.
  std::vector<at::Tensor> own_operands() const;

  const size_t inputs_;
  std::vector<at::Tensor> leaves_;
  const size_t parameters_;             // how many leaves are the optimizer's
  std::vector<at::Tensor> captured_;    // parameters, buffers, and tensors of the loss function
  BoundTensors bound_;                  // these, and states of the optimizer
  std::vector<size_t> marked_;          // arguments that a call has require a gradient
  std::vector<size_t> arguments_;       // arguments that gradients flow to: the outputs of the recorded graph after the loss
  std::vector<size_t> gradients_;       // per output after these: the leaf
  std::vector<c10::IValue> reads_;      // numbers that module and backward have read: the outputs after these
  std::vector<size_t> written_;         // inputs of the plan, if it reads numbers
  bool draws_ = false;                  // random numbers
  std::unique_ptr<StepUpdate> update_;  // null if the plan returns the gradients
  std::shared_ptr<GradientBuckets> buckets_;  // of a plan that reduces them
  std::shared_ptr<OptimizerShards> shards_;   // of a plan that updates segments
  std::vector<at::Tensor> exchanged_;         // what the plan is given of both
  std::shared_ptr<std::vector<ReductionExplanation>> reductions_;
  std::shared_ptr<CompiledTrace> plan_;
};

}  // namespace sconce
