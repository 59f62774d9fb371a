// Every model of SCONCE_MODELS_DIR (tests/models/write_models.py makes them) on sconce and on LibTorch, operator after
// operator.
#include "tests/differential/observed_call.h"
#include "tests/support/graphs.h"
#include "tests/support/model_files.h"

#include "tools/peers/executor_settings.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/check/reference_calls.h"
#include "tools/sconce/commands/ops_library.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/value_walk.h"

#include "load/load_module.h"

#include <sconce/sconce.h>

#include <torch/csrc/jit/api/module.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

namespace sconce::testing {
namespace {

constexpr size_t kModelCalls = 5;
constexpr uintmax_t kLargeFile = 10'000'000;  // such models are called in one case only
// The backward pass of such a model takes seconds: there is one after the first call and one after the last.
constexpr uintmax_t kHugeFile = 100'000'000;
constexpr cli::CompareOptions kModelTolerance{.rtol = 0, .atol = 0};
// Of merged nodes the gradients are added up in another order.
constexpr cli::CompareOptions kMergedGradients{.rtol = 1e-5, .atol = 1e-6};
// Backward passes add up in the order in which oneDNN's threads finish: LibTorch differs from itself by as much.
constexpr cli::CompareOptions kModelGradients{.rtol = 1e-3, .atol = 1e-5};

// ---- calls ----------------------------------------------------------------------------------------------------------

// The gradients that one backward pass adds to the parameters, by name. Empty when no output requires a gradient.
std::vector<cli::NamedTensor> accumulated_gradients(const c10::IValue& output, const torch::jit::Module& module) {
  const auto loss = cli::mean_square_loss(cli::differentiable_tensors(output));
  std::vector<cli::NamedTensor> gradients;
  if (loss) {
    loss->backward();
    for (const auto& parameter : module.named_parameters()) {
      gradients.push_back({parameter.name, parameter.value.grad()});
    }
  }
  return gradients;
}

void add_difference(cli::Findings& findings, const std::string& path, const std::string& got, const std::string& expected) {
  if (got != expected) {
    findings.add(cli::kAgainstReference, path, got + " instead of " + expected);
  }
}

void compare_layouts(const c10::IValue& got, const c10::IValue& expected, const std::string& path,
                     std::string (*describe)(const at::Tensor&), cli::Findings& findings) {
  const auto got_tensors = cli::tensors_in(got, path, cli::Objects::kEnter);
  const auto expected_tensors = cli::tensors_in(expected, path, cli::Objects::kEnter);
  for (size_t i = 0; i < got_tensors.size() && i < expected_tensors.size(); ++i) {
    add_difference(findings, got_tensors[i].path, describe(got_tensors[i].tensor), describe(expected_tensors[i].tensor));
  }
}

void compare_gradients(const cli::ReferenceModels& models, const cli::ReferenceModels::Outcomes& outcomes,
                       cli::Findings& findings) {
  const auto got = accumulated_gradients(outcomes.got.output, models.original());
  const auto expected = accumulated_gradients(outcomes.expected.output, models.reference());
  add_difference(findings, "gradients", std::to_string(got.size()), std::to_string(expected.size()));
  for (size_t i = 0; i < got.size() && i < expected.size(); ++i) {
    findings.add_all(cli::kAgainstReference,
                     cli::compare(got[i].tensor, expected[i].tensor, kModelGradients, "gradient of " + got[i].path));
  }
}

// Calls 1 … 5, with backward passes after them: they must not change what the next call gives.
void check_case(const std::string& name, const cli::ModelCases& cases, size_t index, const Options& options,
                cli::Findings& findings) {
  cli::ReferenceModels models(load(model_file(name), options), load_script_module(model_file(name), std::nullopt),
                              cases.method, cli::ReferenceModels::State::kCompare);
  // Without optimization every call runs the same plan: what a call leaves behind is seen in the second.
  const size_t calls = options.optimize() ? kModelCalls : 2;
  const bool is_huge = std::filesystem::file_size(model_file(name)) > kHugeFile;
  for (size_t call = 1; call <= calls; ++call) {
    findings.begin_call(call);
    cli::ReferenceModels::Outcomes outcomes = models.call(cases.inputs[index], cases.seed + call - 1, call);
    models.compare_outcomes(outcomes, kModelTolerance, /*has_answer=*/true, findings);
    if (outcomes.got.error || outcomes.expected.error) {
      return;
    }
    // Without gradients a result need not be a view of another new tensor, as linear's is in LibTorch.
    compare_layouts(outcomes.got.output, outcomes.expected.output, "out", call % 3 == 1 ? describe_layout : describe_form,
                    findings);
    for (size_t i = 0; i < outcomes.got.arguments.size(); ++i) {
      compare_layouts(outcomes.got.arguments[i], outcomes.expected.arguments[i], "inputs[" + std::to_string(i) + "]",
                      describe_argument, findings);
    }
    if (call == 1) {
      const cli::CompareOptions recorded{.rtol = cases.rtol, .atol = cases.atol, .requires_grad = false};
      findings.add_all(cli::kAgainstRecorded, cli::compare(outcomes.got.output, cases.outputs[index], recorded));
    }
    if (!is_huge || call == 1 || call == kModelCalls) {
      compare_gradients(models, outcomes, findings);
    }
  }
}

void check_model(const std::string& name) {
  const auto cases = std::get<cli::ModelCases>(cli::read_cases(cases_file(name)));
  const bool is_large = std::filesystem::file_size(model_file(name)) > kLargeFile;
  for (const bool optimize : {true, false}) {
    cli::Findings findings;
    // Without optimization one case is enough, too.
    const size_t count = optimize && !is_large ? cases.inputs.size() : 1;
    for (size_t i = 0; i < count; ++i) {
      findings.begin_case("case " + std::to_string(i), optimize ? "optimized" : "not optimized");
      // Specialized plans in every other case, in the calls that record no gradients.
      const CompileMode mode = i % 2 == 0 ? CompileMode::kBlocking : CompileMode::kNever;
      check_case(name, cases, i, Options().optimize(optimize).exact(true).compile(mode), findings);
    }
    EXPECT_TRUE(findings.all().empty()) << cli::to_text(findings);
  }
}

// Frozen, in evaluation mode. Batch norms are folded, which in deep networks moves small results by a good part of them.
void check_frozen(const std::string& name) {
  const auto cases = std::get<cli::ModelCases>(cli::read_cases(cases_file(name)));
  const bool is_large = std::filesystem::file_size(model_file(name)) > kLargeFile;
  const cli::CompareOptions rounded{
      .rtol = std::max(cases.rtol, 1e-3), .atol = std::max(cases.atol, 1e-4), .requires_grad = false};
  cli::Findings findings;
  for (size_t i = 0; i < (is_large ? 1 : cases.inputs.size()); ++i) {
    findings.begin_case("case " + std::to_string(i), "frozen");
    Module module = load(model_file(name), Options().frozen(true));
    torch::jit::Module reference = load_script_module(model_file(name), std::nullopt);
    module.eval();
    reference.eval();
    cli::ReferenceModels models(module, reference, cases.method, cli::ReferenceModels::State::kCompare);
    for (size_t call = 1; call <= 3; ++call) {
      findings.begin_call(call);
      const cli::ReferenceModels::Outcomes outcomes = models.call(cases.inputs[i], cases.seed + call - 1, call);
      models.compare_outcomes(outcomes, rounded, /*has_answer=*/true, findings);
      if (outcomes.got.error || outcomes.expected.error) {
        break;
      }
    }
    for (const RefusalExplanation& refusal : module.method(cases.method).explain().refusals) {
      std::cout << name << ": " << refusal.what << ": " << refusal.reason << "\n";
    }
  }
  EXPECT_TRUE(findings.all().empty()) << cli::to_text(findings);
}

// Calls 1 … 4 in an autocast region each, with specialized plans. LibTorch's own results change by as much when the
// arguments move by one ulp: some roundings to bfloat16.
void check_under_autocast(const std::string& name) {
  const auto cases = std::get<cli::ModelCases>(cli::read_cases(cases_file(name)));
  if (std::filesystem::file_size(model_file(name)) > kHugeFile) {
    return;
  }
  cli::set_autocast_of_calls(at::kBFloat16);
  const cli::CompareOptions rounded{.rtol = 0.03, .atol = 0.03};
  cli::Findings findings;
  findings.begin_case("case 0", "under autocast");
  cli::ReferenceModels models(load(model_file(name), Options().compile(CompileMode::kBlocking)),
                              load_script_module(model_file(name), std::nullopt), cases.method,
                              cli::ReferenceModels::State::kCompare);
  for (size_t call = 1; call <= 4; ++call) {
    findings.begin_call(call);
    const cli::ReferenceModels::Outcomes outcomes = models.call(cases.inputs[0], cases.seed + call - 1, call);
    // LibTorch's tolist() takes no bfloat16.
    if (outcomes.expected.error && outcomes.expected.error->find("INTERNAL ASSERT") != std::string::npos) {
      break;
    }
    models.compare_outcomes(outcomes, rounded, /*has_answer=*/false, findings);
    if (outcomes.got.error || outcomes.expected.error) {
      break;
    }
  }
  cli::set_autocast_of_calls(std::nullopt);
  EXPECT_TRUE(findings.all().empty()) << cli::to_text(findings);
}

class ModelTest : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ModelTest);

TEST_P(ModelTest, AgreesWithLibTorchFromCall1ToCall5) { check_model(GetParam()); }
TEST_P(ModelTest, AgreesWithLibTorchWhenFrozen) { check_frozen(GetParam()); }
TEST_P(ModelTest, AgreesWithLibTorchUnderAutocast) { check_under_autocast(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Models, ModelTest, ::testing::ValuesIn(models_in_part()),
                         [](const auto& model) { return model.param; });

// ---- models with operators that LibTorch lacks ----------------------------------------------------------------------

// The library of tests/plugins, and the folder of the models that need it.
constexpr const char* kTorchvisionOperators = "torchvision_ops";

class TorchvisionModelTest : public ::testing::TestWithParam<std::string> {
 public:
  static void SetUpTestSuite() { cli::open_ops_library(plugin_file(kTorchvisionOperators)); }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TorchvisionModelTest);

TEST_P(TorchvisionModelTest, AgreesWithLibTorchFromCall1ToCall5) { check_model(GetParam()); }
TEST_P(TorchvisionModelTest, AgreesWithLibTorchWhenFrozen) { check_frozen(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Models, TorchvisionModelTest, ::testing::ValuesIn(models_in_part(kTorchvisionOperators)),
                         [](const auto& model) { return std::filesystem::path(model.param).filename().string(); });

// ---- the operator suite ---------------------------------------------------------------------------------------------

// One method per operator, in a file that is model and cases at once. The sconce check command compares with the recorded
// answers; here everything else about the calls is compared too.
TEST(OperatorSuite, AgreesWithLibTorchFromCall1ToCall3) {
  const std::string file = cases_file("operators");
  const auto cases = std::get<cli::OperatorCases>(cli::read_cases(file));
  const Module generic = load(file, Options().compile(CompileMode::kNever));
  const Module specialized = load(file, Options().exact(true).compile(CompileMode::kBlocking));
  const Module differentiating = load(file, Options().compile(CompileMode::kBlocking).min_differentiable_nodes(1));
  const torch::jit::Module reference = load_script_module(file, std::nullopt);
  const peers::ExecutorScope eager({.optimize = false});
  for (const cli::OperatorCase& each : cases) {
    SCOPED_TRACE(each.name);
    std::vector<c10::IValue> arguments;
    for (size_t i = 0; i < each.inputs.size(); ++i) {
      arguments.emplace_back(each.inputs[i].detach().set_requires_grad(each.needs_grad[i]));
    }
    const auto method = reference.get_method(each.method);
    for (uint64_t call = 1; call <= 3; ++call) {
      const ObservedCall expected =
          observe_call(arguments, call, [&](torch::jit::Stack& stack) { stack = {method(std::move(stack))}; });
      EXPECT_FALSE(expected.error) << *expected.error;
      const auto expect_agreement = [&](const Module& module, Strictness strictness, const cli::CompareOptions& values) {
        const ObservedCall got =
            observe_call(arguments, call, [&](torch::jit::Stack& stack) { module.method(each.method).run(stack); });
        EXPECT_THAT(differences(got, expected, strictness, values, kMergedGradients), ::testing::IsEmpty());
      };
      expect_agreement(generic, Strictness::kEverything, kModelTolerance);
      expect_agreement(specialized, Strictness::kEverything, kModelTolerance);
      // Composed operators of LibTorch return views of what they compute; a differentiable subgraph returns new tensors.
      expect_agreement(differentiating, Strictness::kValues, kMergedGradients);
    }
  }
  std::cout << cases.size() << " operators\n";
}

TEST(ModelFiles, AreThere) {
  EXPECT_GE(model_names(kTorchvisionOperators).size(), 1U)
      << "no models in " << models_dir() << "/" << kTorchvisionOperators;
  EXPECT_GE(model_names().size(), 30U) << "no models in " << models_dir()
                                       << ": run tests/models/write_models.py, or set SCONCE_MODELS_DIR";
}

}  // namespace
}  // namespace sconce::testing
