#include "training/step/step_trace.h"

#include "trace/recorder.h"
#include "training/backward/node_hooks.h"

#include <sconce/compiled_backward.h>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace sconce {
namespace {

// Containers are copied: the caller may change its own.
std::vector<c10::IValue> structure_of(const std::vector<c10::IValue>& values) {
  std::vector<c10::IValue> structure;
  for (const c10::IValue& value : values) {
    structure.push_back(with_each_tensor(value, [](const at::Tensor&) { return at::Tensor(); }));
  }
  return structure;
}

bool have_equal_structures(const std::vector<c10::IValue>& a, const std::vector<c10::IValue>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), have_equal_structure);
}

bool has_hooks(const at::Tensor& parameter) {
  namespace impl = torch::autograd::impl;
  return !impl::hooks(parameter).empty() || impl::post_acc_grad_hooks(parameter) != nullptr;
}

}  // namespace

StepArguments::StepArguments(const std::vector<c10::IValue>& given, const std::vector<c10::IValue>& wanted)
    : inputs(given), targets(wanted) {
  for (const auto* values : {&inputs, &targets}) {
    for (const c10::IValue& value : *values) {
      with_each_tensor(value, [&](const at::Tensor& tensor) {
        tensors.push_back(tensor);
        return tensor;
      });
    }
  }
  key = trace_key(tensors);
}

TrainTrace::TrainTrace(const Module& module, const StepArguments& arguments, const std::vector<at::Tensor>& parameters)
    : state_(module.script_module()._ivalue()),
      inputs_(structure_of(arguments.inputs)),
      targets_(structure_of(arguments.targets)),
      key_(arguments.key),
      parameters_(parameters) {}

bool TrainTrace::holds(const StepArguments& arguments, const std::vector<at::Tensor>& parameters) const {
  const auto is_same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
  return state_.holds() &&
         std::equal(parameters.begin(), parameters.end(), parameters_.begin(), parameters_.end(), is_same) &&
         have_equal_structures(arguments.inputs, inputs_) && have_equal_structures(arguments.targets, targets_) &&
         arguments.key == key_ && trace_key(captured_) == captured_key_;
}

void TrainTrace::run_recorded(const Module& module, const TrainStep::GeneralLoss& loss, const std::vector<c10::IValue>& inputs,
                             const std::vector<c10::IValue>& targets, Recorder& recorder, StepResult& result) {
  const EagerBackward by_engine;  // whose operators the recorder sees
  const RecordingScope scope(recorder);
  const at::Tensor value = loss(module.forward(inputs), targets);
  if (history_has_hooks({value})) {
    recorder.refuse("the model or the loss function registers a hook on a tensor that it computes, or a parameter has one");
  }
  const std::vector<at::Tensor> gradients =
      torch::autograd::grad({value}, parameters_, {}, /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
  result.loss = real_of(value).detach();
  recorder.add_output(value.detach());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (has_hooks(parameters_[i])) {
      recorder.refuse("a parameter has hooks");
    }
    result.gradients.push_back(gradients[i].defined() ? real_of(gradients[i]) : at::Tensor());
    if (gradients[i].defined()) {
      recorder.add_output(gradients[i]);
      gradients_.push_back(i);
    }
  }
}

std::unique_ptr<TrainTrace> TrainTrace::record(const Module& module, const TrainStep::GeneralLoss& loss,
                                             const StepArguments& arguments, const std::vector<at::Tensor>& parameters,
                                             StepResult& result) {
  std::unique_ptr<TrainTrace> trace(new TrainTrace(module, arguments, parameters));
  Recorder recorder;
  const auto traced = [&](const std::vector<c10::IValue>& values) {
    std::vector<c10::IValue> copies;
    for (const c10::IValue& value : values) {
      copies.push_back(with_each_tensor(value, [&](const at::Tensor& tensor) { return recorder.add_argument(tensor); }));
    }
    return copies;
  };
  const std::vector<c10::IValue> inputs = traced(arguments.inputs);
  const std::vector<c10::IValue> targets = traced(arguments.targets);
  trace->run_recorded(module, loss, inputs, targets, recorder, result);
  if (!trace->state_.holds()) {
    recorder.refuse("a call changes an attribute of the module");
  }
  if (hand_back_tensors(*module.script_module()._ivalue())) {
    recorder.refuse("the module keeps a tensor that it has computed in an attribute");
  }
  trace->captured_ = recorder.captured();
  trace->captured_key_ = trace_key(trace->captured_);
  if (recorder.refusal()) {
    trace->why_not_ = recorder.refusal()->reason;
    return trace;
  }
  trace->plan_ = CapturedGraph::make(recorder.finish(/*has_facts=*/true), "train step", module.options());
  return trace;
}

StepResult TrainTrace::run(const StepArguments& arguments) const {
  torch::jit::Stack stack(arguments.tensors.begin(), arguments.tensors.end());
  stack.insert(stack.end(), captured_.begin(), captured_.end());
  plan_->run(stack);
  StepResult result;
  result.loss = std::move(stack.front()).toTensor();
  result.gradients.resize(parameters_.size());
  for (size_t i = 0; i < gradients_.size(); ++i) {
    result.gradients[gradients_[i]] = std::move(stack[i + 1]).toTensor();
  }
  return result;
}

}  // namespace sconce
