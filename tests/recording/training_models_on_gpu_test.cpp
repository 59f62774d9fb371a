// Gradients of the models of the tests on the simulated GPU: those of LibTorch there, in every call.
//
//   SCONCE_MODELS=mlp build/release/tests/recording_test --gtest_filter='TrainingModelsOnGpu*'    one model
#include "tests/recording/module_on_both.h"
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
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace sconce::testing {
namespace {

const c10::Device kTrainingGpu(c10::kCUDA, 0);

// Steps of forward and backward plans of differentiable subgraphs.
struct TrainingShare {
  size_t recorded = 0;
  size_t others = 0;
  uint64_t replays = 0;
  std::map<std::string, size_t> reasons;

  void add(const Explanation& explanation) {
    for (const PlanExplanation& plan : explanation.plans) {
      for (const DifferentiableExplanation& subgraph :
           plan.gradients ? plan.gradients->subgraphs : decltype(plan.gradients->subgraphs)()) {
        std::for_each(subgraph.plans.begin(), subgraph.plans.end(), [this](const PlanExplanation& each) { add(each); });
      }
    }
    for (const Explanation& callee : explanation.callees) {
      add(callee);
    }
  }

 private:
  void add(const PlanExplanation& plan) {
    others += plan.traits.steps;
    for (const NotRecordableExplanation& entry : plan.traits.not_recordable) {
      reasons[entry.op + ": " + to_string(entry.reason)] += entry.steps;
    }
    for (const RecordedExplanation& range : plan.recorded) {
      recorded += range.plan.front().traits.steps;
      replays += range.replays;
      for (const auto& unrecorded : range.unrecorded) {
        if (unrecorded.reason != "warm-up" && unrecorded.reason.find("first run") == std::string::npos) {
          reasons[unrecorded.reason] += 1;
        }
      }
    }
  }
};

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
std::string train_model(const std::string& name, const Options& options, TrainingShare& share) {
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
  share.add(module.method(cases->method).explain());
  EXPECT_TRUE(gpu.driver().misuse().empty()) << name;
  return {};
}

void train_all(const Options& options, uintmax_t largest_file) {
  const char* const only = std::getenv("SCONCE_MODELS");
  TrainingShare total;
  size_t with_replays = 0;
  size_t models = 0;
  for (const std::string& name : model_names()) {
    if ((only != nullptr && name != only) || std::filesystem::file_size(model_file(name)) > largest_file) {
      continue;
    }
    TrainingShare share;
    const std::string why_not = train_model(name, options, share);
    if (!why_not.empty()) {
      const size_t error = why_not.find("Error: ");
      const std::string text = error == std::string::npos ? why_not : why_not.substr(error);
      std::cout << name << ": left out: " << text.substr(0, text.find('\n')) << "\n";
      continue;
    }
    ++models;
    with_replays += share.replays > 0 ? 1 : 0;
    std::cout << name << ": " << share.recorded << " of " << share.recorded + share.others << " steps are recorded, "
              << share.replays << " replays\n";
    total.recorded += share.recorded;
    total.others += share.others;
    for (const auto& [reason, count] : share.reasons) {
      total.reasons[reason] += count;
    }
  }
  std::cout << total.recorded << " of " << total.recorded + total.others << " steps are recorded in " << with_replays
            << " of " << models << " models; not recorded:\n";
  for (const auto& [reason, count] : total.reasons) {
    std::cout << "  " << count << " " << reason << "\n";
  }
  EXPECT_TRUE(only != nullptr || with_replays > models / 3);
}

TEST(TrainingModelsOnGpu, AgreeWithoutKernels) {
  Options options = Options().compile(CompileMode::kBlocking);
  options.passes().disable("form_groups");
  train_all(options, 1'000'000);
}

TEST(TrainingModelsOnGpu, AgreeWithKernels) { train_all(Options().compile(CompileMode::kBlocking), 60'000); }

}  // namespace
}  // namespace sconce::testing
