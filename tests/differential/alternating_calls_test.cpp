// Calls whose arguments alternate between few kinds, on one module: each step keeps the kernels of some of them.
#include "tests/support/graphs.h"
#include "tests/support/model_files.h"

#include "tools/sconce/values/cases.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

namespace sconce::testing {
namespace {

// Models without state of their own: the order of calls does not matter.
const char* const kModels[] = {"mlp",          "dlrm",          "lstm_loop",        "gru_loop",        "small_encoder",
                               "decoder_step", "conv_bn_small", "causal_attention", "forked_branches", "interface_mixture"};

TEST(AlternatingCalls, GiveWhatTheFirstCallGave) {
  const at::NoGradGuard no_grad;
  for (const char* name : kModels) {
    const auto cases = std::get<cli::ModelCases>(cli::read_cases(cases_file(name)));
    for (const CompileMode mode : {CompileMode::kNever, CompileMode::kBlocking}) {
      const Module module = load(model_file(name), Options().compile(mode));
      for (const size_t i : {0, 1, 0, 1, 2, 0, 1, 2, 0, 2, 1, 1, 0, 2, 0, 1, 0, 1, 2, 2}) {
        const size_t k = i % cases.inputs.size();
        std::vector<c10::IValue> arguments;
        for (const c10::IValue& argument : cases.inputs[k]) {
          arguments.push_back(argument.deepcopy());
        }
        at::manual_seed(cases.seed);
        const c10::IValue result = module.run_method(cases.method, std::move(arguments));
        EXPECT_TRUE(agree(result, cases.outputs[k], cases.rtol)) << name << ", case " << k;
      }
    }
  }
}

}  // namespace
}  // namespace sconce::testing
