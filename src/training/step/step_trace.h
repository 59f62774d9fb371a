// TrainTrace: forward, loss and backward of one kind of training step, as one plan.
#pragma once

#include "executor/captured_graph.h"
#include "trace/trace_key.h"
#include "training/step/module_state.h"

#include <sconce/module.h>
#include <sconce/train_step.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

class Recorder;

// What a step is called with, and what is derived of it in the state of the thread.
struct StepArguments {
  StepArguments(const std::vector<c10::IValue>& inputs, const std::vector<c10::IValue>& targets);

  const std::vector<c10::IValue>& inputs;
  const std::vector<c10::IValue>& targets;
  std::vector<at::Tensor> tensors;  // in both
  TraceKey key;                     // of the tensors
};

// What forward, loss and backward of a step gave.
struct StepResult {
  at::Tensor loss;                    // without history
  std::vector<at::Tensor> gradients;  // per parameter; undefined where none flows
};

class TrainTrace {
 public:
  // Runs forward, loss and backward with LibTorch's operators, and records them. `result` is what they gave. Returns the
  // trace; without a plan if it cannot be replayed (`why_not`).
  static std::unique_ptr<TrainTrace> record(const Module& module, const TrainStep::GeneralLoss& loss,
                                           const StepArguments& arguments, const std::vector<at::Tensor>& parameters,
                                           StepResult& result);

  // Returns whether the trace is of such a call.
  bool holds(const StepArguments& arguments, const std::vector<at::Tensor>& parameters) const;
  const std::string& why_not() const { return why_not_; }
  // Returns whether there is a plan. It is compiled in the background.
  bool is_ready() const { return plan_ != nullptr && plan_->is_ready(); }
  // Requires `is_ready`, and `holds`.
  StepResult run(const StepArguments& arguments) const;

  const CapturedGraph* plan() const { return plan_.get(); }

 private:
  TrainTrace(const Module& module, const StepArguments& arguments, const std::vector<at::Tensor>& parameters);
  // Runs forward, loss and backward in the recorder's scope, and adds the outputs of its graph.
  void run_recorded(const Module& module, const TrainStep::GeneralLoss& loss, const std::vector<c10::IValue>& inputs,
                    const std::vector<c10::IValue>& targets, Recorder& recorder, StepResult& result);

  const ModuleState state_;
  const std::vector<c10::IValue> inputs_;   // their structure
  const std::vector<c10::IValue> targets_;
  const TraceKey key_;
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> captured_;  // parameters, buffers, and tensors of the loss function
  TraceKey captured_key_;
  std::vector<size_t> gradients_;  // per output of the plan after the loss: the parameter
  std::string why_not_;
  std::shared_ptr<CapturedGraph> plan_;
};

}  // namespace sconce
