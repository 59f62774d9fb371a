// Gradients of the models of the tests on the simulated GPU: those of LibTorch there, in every call.
//
//   SCONCE_MODELS=mlp build/release/tests/cuda_graphs_test --gtest_filter='TrainingModelsOnGpu*'    one model
#include "tests/cuda_graphs/captured_share.h"
#include "tests/cuda_graphs/module_on_both.h"
#include "tests/support/model_files.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/deep_copy.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

namespace sconce::testing {
namespace {

const c10::Device kTrainingGpu(c10::kCUDA, 0);

// Adds the steps of forward and backward plans of differentiable subgraphs.
void add_gradients(const Explanation& explanation, CapturedShare& share) {
  for (const PlanExplanation& plan : explanation.plans) {
    for (const DifferentiableExplanation& subgraph :
         plan.gradients ? plan.gradients->subgraphs : decltype(plan.gradients->subgraphs)()) {
      for (const PlanExplanation& each : subgraph.plans) {
        share.add(each, &TraitsExplanation::steps);
      }
    }
  }
  for (const Explanation& callee : explanation.callees) {
    add_gradients(callee, share);
  }
}

// Returns the gradients of a call's arguments and of the module's parameters.
std::vector<at::Tensor> gradients_of(const c10::IValue& result, const torch::jit::Module& module) {
  const at::Tensor sum = weighted_sum(tensors_in(result));
  if (sum.defined()) {
    sum.backward();
  }
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : module.parameters()) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

// Trains the model on its first case, beside LibTorch's interpreter. Returns why that cannot: some models mix devices, and
// some operators have no kernel for the CPU.
std::string train_model(const std::string& name, const Options& options, CapturedShare& share) {
  const auto read = cli::read_cases(cases_file(name));
  const auto* const cases = std::get_if<cli::ModelCases>(&read);
  if (cases == nullptr || cases->inputs.empty()) {
    return "it has no cases of this form";
  }
  SimulatedGpu gpu;
  torch::jit::Module peer = torch::jit::load(model_file(name));
  peer = copy_on_gpu(peer);
  Module module = accelerate(copy_on_gpu(peer), options);
  for (int call = 1; call <= 5; ++call) {
    std::vector<at::Tensor> expected;
    c10::IValue wanted;
    try {
      torch::jit::setGraphExecutorOptimize(false);
      at::manual_seed(cases->seed);
      wanted = peer.get_method(cases->method)(cli::deep_copy_to(cases->inputs[0], kTrainingGpu));
      expected = gradients_of(wanted, peer);
    } catch (const std::exception& error) {
      torch::jit::setGraphExecutorOptimize(true);
      return error.what();
    }
    torch::jit::setGraphExecutorOptimize(true);
    at::manual_seed(cases->seed);
    const c10::IValue result = module.run_method(cases->method, cli::deep_copy_to(cases->inputs[0], kTrainingGpu));
    const std::vector<at::Tensor> found = gradients_of(result, module.script_module());
    gpu.runtime().synchronize(0);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i].defined() != found[i].defined()) {
        ADD_FAILURE() << name << ", call " << call << ", gradient " << i << ": "
                      << (found[i].defined() ? "defined" : "undefined");
        return {};
      }
      if (!found[i].defined()) {
        continue;
      }
      const at::Tensor a = gpu.values(found[i]);
      const at::Tensor b = gpu.values(expected[i]);
      const double scale = std::max(1.0, b.abs().max().item<double>());
      if (!at::allclose(a / scale, b / scale, 1e-3, 1e-4, /*equal_nan=*/true)) {
        ADD_FAILURE() << name << ", call " << call << ", gradient " << i << " differs by "
                      << (a - b).abs().max().item<double>() << " of " << scale;
        return {};
      }
    }
  }
  add_gradients(module.method(cases->method).explain(), share);
  EXPECT_TRUE(gpu.driver().misuse().empty()) << name;
  return {};
}

TEST(TrainingModelsOnGpu, AgreeWithoutKernels) {
  Options options = Options().compile(CompileMode::kBlocking);
  options.passes().disable("form_groups");
  run_models(options, 1'000'000, 3, &train_model);
}

TEST(TrainingModelsOnGpu, AgreeWithKernels) {
  run_models(Options().compile(CompileMode::kBlocking), 60'000, 3, &train_model);
}

}  // namespace
}  // namespace sconce::testing
