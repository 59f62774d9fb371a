#include "tests/cuda_graphs/module_on_both.h"

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <string_view>

namespace sconce::testing {
namespace {

const c10::Device kGpuOfBoth(c10::kCUDA, 0);

void add_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      add_tensors(element, tensors);
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      add_tensors(entry.value(), tensors);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      add_tensors(element, tensors);
    }
  }
}

void add(RangeCounts& sum, const PlanExplanation& plan) {
  const RangeCounts part = counts_of(plan.recorded);
  sum.ranges += part.ranges;
  sum.captures += part.captures;
  sum.replays += part.replays;
  sum.reasons += part.reasons;
  for (const NotRecordableExplanation& each : plan.traits.not_recordable) {
    sum.reasons += each.op + ": " + to_string(each.reason) + ": " + each.node + "\n";
  }
}

void add_plan(const PlanExplanation& plan, TrainingCounts& counts) {
  add(counts.own, plan);
  if (!plan.gradients) {
    return;
  }
  for (const DifferentiableExplanation& subgraph : plan.gradients->subgraphs) {
    add(counts.forward, subgraph.plans.at(0));
    add(counts.backward, subgraph.plans.at(1));
  }
}

// Returns whether the tensors are close, or both undefined.
::testing::AssertionResult are_close(SimulatedGpu& simulated, const at::Tensor& found, const at::Tensor& expected) {
  if (found.defined() != expected.defined()) {
    return ::testing::AssertionFailure() << (found.defined() ? "defined" : "undefined");
  }
  return !found.defined() ? ::testing::AssertionSuccess()
                          : agree(c10::IValue(simulated.values(found)), c10::IValue(expected.detach()), 2e-5);
}

}  // namespace

torch::jit::Module copy_on_gpu(const torch::jit::Module& module) {
  const at::NoGradGuard no_grad;
  torch::jit::Module copy = module.deepcopy();
  copy.to(kGpuOfBoth);
  for (const at::Tensor& parameter : copy.parameters()) {
    parameter.set_requires_grad(true);
  }
  return copy;
}

std::vector<at::Tensor> parameters_of(const torch::jit::Module& module) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : module.parameters()) {
    parameters.push_back(parameter);
  }
  return parameters;
}

RangeCounts counts_of(const std::vector<RecordedExplanation>& ranges) {
  RangeCounts counts;
  for (const RecordedExplanation& each : ranges) {
    ++counts.ranges;
    counts.captures += each.recordings;
    counts.replays += each.replays;
    for (const auto& uncaptured : each.unrecorded) {
      counts.reasons += std::to_string(uncaptured.runs) + " times: " + uncaptured.reason + "\n";
    }
  }
  return counts;
}

TrainingCounts counts_of(const Explanation& explanation) {
  TrainingCounts counts;
  for (const PlanExplanation& plan : explanation.plans) {
    add_plan(plan, counts);
  }
  return counts;
}

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  add_tensors(value, tensors);
  return tensors;
}

at::Tensor weighted_sum(const std::vector<at::Tensor>& outputs) {
  at::Tensor sum;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs[i].requires_grad()) {
      continue;
    }
    const at::Tensor weights =
        at::sin(at::arange(outputs[i].numel(), at::kFloat) + static_cast<double>(i)).view(outputs[i].sizes());
    const at::Tensor part = (outputs[i] * weights.to(outputs[i].options())).sum();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

ModuleOnBoth::ModuleOnBoth(SimulatedGpu& gpu_to_use, const std::string& methods, const Attributes& attributes,
                           Options options)
    : simulated(gpu_to_use),
      cpu(module_of(methods, attributes)),
      gpu(accelerate(copy_on_gpu(cpu), options.compile(CompileMode::kBlocking))) {}

ModuleOnBoth::Call ModuleOnBoth::forward(const std::vector<c10::IValue>& arguments, const std::string& where) {
  Call call;
  std::vector<c10::IValue> cpu_values;
  std::vector<c10::IValue> gpu_values;
  for (const c10::IValue& value : arguments) {
    if (!value.isTensor()) {
      cpu_values.push_back(value);
      gpu_values.push_back(value);
      continue;
    }
    const bool requires_grad = value.toTensor().requires_grad();
    call.cpu_arguments.push_back(value.toTensor().detach().clone().set_requires_grad(requires_grad));
    call.gpu_arguments.push_back(simulated.tensor(value.toTensor().detach()).set_requires_grad(requires_grad));
    cpu_values.emplace_back(call.cpu_arguments.back());
    gpu_values.emplace_back(call.gpu_arguments.back());
  }
  const bool optimizes = torch::jit::getGraphExecutorOptimize();
  torch::jit::setGraphExecutorOptimize(false);
  call.cpu = tensors_in(cpu.forward(cpu_values));
  torch::jit::setGraphExecutorOptimize(optimizes);
  call.gpu = tensors_in(gpu.forward(gpu_values));
  EXPECT_EQ(call.gpu.size(), call.cpu.size()) << where;
  for (size_t i = 0; i < call.cpu.size(); ++i) {
    EXPECT_EQ(call.gpu[i].requires_grad(), call.cpu[i].requires_grad()) << where << ", output " << i;
    EXPECT_TRUE(are_close(simulated, call.gpu[i], call.cpu[i])) << where << ", output " << i;
  }
  return call;
}

void ModuleOnBoth::backward(const Call& call, bool retain_graph) const {
  weighted_sum(call.cpu).backward({}, retain_graph);
  weighted_sum(call.gpu).backward({}, retain_graph);
}

void ModuleOnBoth::expect_equal_gradients(const Call& call, const std::string& where) const {
  const torch::jit::Module on_gpu = gpu.script_module();
  const auto gpu_parameters = on_gpu.named_parameters();
  auto found = gpu_parameters.begin();
  for (const auto& parameter : cpu.named_parameters()) {
    EXPECT_TRUE(are_close(simulated, (*found).value.grad(), parameter.value.grad())) << where << ", " << parameter.name;
    ++found;
  }
  const auto gpu_buffers = on_gpu.named_buffers();
  auto buffer = gpu_buffers.begin();
  for (const auto& expected : cpu.named_buffers()) {
    EXPECT_TRUE(are_close(simulated, (*buffer).value, expected.value)) << where << ", " << expected.name;
    ++buffer;
  }
  for (size_t i = 0; i < call.cpu_arguments.size(); ++i) {
    EXPECT_TRUE(are_close(simulated, call.gpu_arguments[i].grad(), call.cpu_arguments[i].grad()))
        << where << ", argument " << i;
  }
}

void ModuleOnBoth::zero_gradients() {
  for (const torch::jit::Module& module : {cpu, gpu.script_module()}) {
    for (const at::Tensor& parameter : module.parameters()) {
      parameter.mutable_grad() = at::Tensor();
    }
  }
}

void ModuleOnBoth::train(const std::vector<c10::IValue>& arguments, const std::string& where) {
  const Call call = forward(arguments, where);
  backward(call);
  expect_equal_gradients(call, where);
  zero_gradients();
}

}  // namespace sconce::testing
