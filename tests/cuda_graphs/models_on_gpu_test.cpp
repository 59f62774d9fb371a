// The models of the tests on the simulated GPU: the captured results in every call, with ranges of their plans captured.
//
//   SCONCE_MODELS=resnet18 build/release/tests/cuda_graphs_test --gtest_filter='*ModelsOnGpu*'             one model
//   SCONCE_PRINTED_KERNELS=1 SCONCE_MODEL_BYTES=20000000 … --gtest_filter='*ModelsOnGpu.AgreeWithKernels'   large ones, as
//   printed
#include "tests/cuda_graphs/captured_share.h"
#include "tests/simulated_gpu/simulated_gpu.h"
#include "tests/support/model_files.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/deep_copy.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

namespace sconce::testing {
namespace {

const c10::Device kModelsGpu(c10::kCUDA, 0);

void add_plans(const Explanation& explanation, CapturedShare& share) {
  for (const PlanExplanation& plan : explanation.plans) {
    if (plan.tier == Tier::kRanks) {
      share.add(plan, &TraitsExplanation::computing);
    }
  }
  for (const Explanation& callee : explanation.callees) {
    add_plans(callee, share);
  }
}

class ModelsOnGpu : public ::testing::Test {
 protected:
  // Calls the model on its cases, beside LibTorch's executor. Returns why that cannot run it: some models mix devices, and
  // some operators have no kernel for the CPU.
  static std::string run(const std::string& name, const Options& options, CapturedShare& share) {
    const auto read = cli::read_cases(cases_file(name));
    const auto* const cases = std::get_if<cli::ModelCases>(&read);
    if (cases == nullptr) {
      return "it has no cases of this form";
    }
    SimulatedGpu gpu;
    torch::jit::Module script = torch::jit::load(model_file(name));
    if (script.is_training()) {
      return "it trains";
    }
    script.to(kModelsGpu);
    torch::jit::Module peer = script.deepcopy();
    Module module = accelerate(script, options);
    for (size_t i = 0; i < std::min<size_t>(cases->inputs.size(), 2); ++i) {
      for (int call = 1; call <= 5; ++call) {
        at::manual_seed(cases->seed);
        c10::IValue expected;
        try {
          expected = peer.get_method(cases->method)(cli::deep_copy_to(cases->inputs[i], kModelsGpu));
        } catch (const std::exception& error) {
          return error.what();
        }
        at::manual_seed(cases->seed);
        const c10::IValue found = module.run_method(cases->method, cli::deep_copy_to(cases->inputs[i], kModelsGpu));
        gpu.runtime().synchronize(0);
        const auto mismatches = cli::compare(found, expected, {cases->rtol, cases->atol, false});
        EXPECT_TRUE(mismatches.empty()) << name << ", case " << i << ", call " << call << ": "
                                        << (mismatches.empty() ? "" : to_string(mismatches.front()));
        if (!mismatches.empty()) {
          return {};
        }
      }
    }
    add_plans(module.method(cases->method).explain(), share);
    EXPECT_TRUE(gpu.driver().misuse().empty()) << name;
    return {};
  }

  static void run_all(const Options& options, uintmax_t file_limit) { run_models(options, file_limit, 2, &run); }

  const at::NoGradGuard no_grad_;
};

TEST_F(ModelsOnGpu, AgreeWithoutKernels) {
  Options options = Options().compile(CompileMode::kBlocking);
  options.passes().disable("form_groups");
  run_all(options, 20'000'000);
}

// The simulated GPU runs kernels thread by thread, so that large models take too long.
TEST_F(ModelsOnGpu, AgreeWithKernels) { run_all(Options().compile(CompileMode::kBlocking), 100'000); }

}  // namespace
}  // namespace sconce::testing
