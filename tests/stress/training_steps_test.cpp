// Threads that compute gradients of one module at once: eager's, whatever is compiled or dropped meanwhile.
#include "tests/stress/threads.h"
#include "tests/support/graphs.h"
#include "tools/peers/peer.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

#include "load/load_module.h"

#include <sconce/sconce.h>

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

namespace sconce::testing {
namespace {

constexpr int kTrainers = 6;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kStepsPerThread = 18;
#else
constexpr int kStepsPerThread = 60;
#endif
constexpr cli::CompareOptions kGradientTolerance{.rtol = 1e-3, .atol = 1e-5, .requires_grad = false};

std::string model_path(const char* name) { return models_dir() + "/" + name + ".pt"; }

// The recorded calls of a model, with eager LibTorch's gradients.
class KnownGradients {
 public:
  explicit KnownGradients(const char* model) {
    const auto cases = std::get<cli::ModelCases>(cli::read_cases(models_dir() + "/" + model + ".cases.pt"));
    const torch::jit::Module module = load_script_module(model_path(model), std::nullopt);
    const auto eager = peers::make_peer("eager");
    if (const auto reason = eager->prepare(module, cases.method)) {
      throw std::runtime_error(*reason);
    }
    const auto session = eager->session();
    for (const auto& inputs : cases.inputs) {
      const std::vector<c10::IValue> arguments = cli::fit_arguments(module, cases.method, inputs);
      steps_.push_back({arguments, cli::gradients_of_call(session->run(cli::deep_copy(arguments)), arguments, module)});
    }
  }

  // Makes call number `index`, counted round.
  c10::IValue call(const Module& module, size_t index) const {
    return module.forward(cli::deep_copy(steps_[index % steps_.size()].arguments));
  }
  // Computes the gradients of that call, and compares.
  void check(const Module& module, size_t index, const c10::IValue& output, Failures& failures) const {
    const Step& step = steps_[index % steps_.size()];
    const cli::CallGradients got = cli::gradients_of_call(output, step.arguments, module.script_module());
    if (got.error) {
      failures.add(*got.error);
    }
    for (const cli::Mismatch& mismatch : cli::compare_gradients(got, step.expected, kGradientTolerance)) {
      failures.add(cli::to_string(mismatch));
    }
  }
  size_t gradients() const { return steps_.front().expected.by_name.size(); }

 private:
  struct Step {
    std::vector<c10::IValue> arguments;
    cli::CallGradients expected;
  };
  std::vector<Step> steps_;
};

class SharedTraining : public ::testing::TestWithParam<const char*> {};

// Plans of forward and backward are compiled, and arenas laid out, while all threads train. Then all run them.
TEST_P(SharedTraining, GradientsAreEagersFromTheFirstCallOn) {
  const KnownGradients known(GetParam());
  ASSERT_GT(known.gradients(), 0U);
  for (const CompileMode mode : {CompileMode::kBackground, CompileMode::kBlocking}) {
    const Module module = load(model_path(GetParam()), Options().compile(mode));
    Failures failures;
    run_threads(kTrainers, [&](int thread) {
      for (int i = 0; i < kStepsPerThread; ++i) {
        if (i == kStepsPerThread / 2) {
          module.method("forward").wait_for_compiles();
        }
        const auto index = static_cast<size_t>(i + thread);
        known.check(module, index, known.call(module, index), failures);
      }
    });
    failures.expect_none();
    const Explanation explanation = module.method("forward").explain();
    EXPECT_EQ(explanation.counters.refusals, 0U);
    EXPECT_TRUE(std::any_of(explanation.plans.begin(), explanation.plans.end(), [](const PlanExplanation& plan) {
      return plan.runs > 0 && plan.gradients && !plan.gradients->subgraphs.empty();
    })) << "no thread has run a differentiable subgraph";
  }
}

// Outcomes keep the plans of their backward, which the cache has dropped.
TEST_P(SharedTraining, GradientsAreEagersWhilePlansAreDroppedAndExplained) {
  const KnownGradients known(GetParam());
  const Module module = load(model_path(GetParam()), Options().compile(CompileMode::kBlocking));
  Failures failures;
  std::atomic<int> trainers_left{kTrainers - 1};
  run_threads(kTrainers, [&](int thread) {
    if (thread == 0) {
      while (trainers_left.load() > 0) {
        module.method("forward").clear_cache();
        if (module.method("forward").explain().plans.empty()) {
          failures.add("explain() without a plan");
        }
      }
      return;
    }
    for (int i = 0; i < kStepsPerThread / 3; ++i) {
      const auto index = static_cast<size_t>(i + thread);
      const c10::IValue first = known.call(module, index);
      const c10::IValue second = known.call(module, index + 1);
      known.check(module, index, first, failures);
      known.check(module, index + 1, second, failures);
    }
    trainers_left.fetch_sub(1);
  });
  failures.expect_none();
}

// Backward runs on another thread than forward, and two threads go backward at once.
TEST_P(SharedTraining, GradientsAreEagersOnAnotherThread) {
  const KnownGradients known(GetParam());
  const Module module = load(model_path(GetParam()), Options().compile(CompileMode::kBlocking));
  Failures failures;
  for (int round = 0; round < 10; ++round) {
    std::vector<c10::IValue> outputs(kTrainers);
    run_threads(kTrainers, [&](int thread) {
      const auto index = static_cast<size_t>(thread);
      outputs[index] = known.call(module, index);
    });
    run_threads(kTrainers, [&](int thread) {
      const size_t index = static_cast<size_t>(thread + 1) % kTrainers;
      known.check(module, index, outputs[index], failures);
    });
  }
  failures.expect_none();
}

INSTANTIATE_TEST_SUITE_P(Models, SharedTraining, ::testing::Values("mlp", "lstm_loop", "decoder"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace sconce::testing
