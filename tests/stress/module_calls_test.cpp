// One module, many threads: right answers each time, whatever the others do.
#include "tests/stress/threads.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"

#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/deep_copy.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>

namespace sconce::testing {
namespace {

constexpr int kCallers = 8;
constexpr int kCallsPerThread = 2000;

std::string model_file(const std::string& name) { return models_dir() + "/" + name + ".pt"; }

// Calls with their answers, which one thread got before.
class KnownCalls {
 public:
  struct Call {
    std::vector<c10::IValue> arguments;
    c10::IValue answer;
  };

  // The cases of the model's CASES file.
  static KnownCalls of_model(const std::string& name) {
    const auto cases = std::get<cli::ModelCases>(cli::read_cases(models_dir() + "/" + name + ".cases.pt"));
    return KnownCalls(load(model_file(name)), cases.inputs);
  }
  KnownCalls(const Module& module, const std::vector<std::vector<c10::IValue>>& inputs) {
    for (const auto& arguments : inputs) {
      calls_.push_back({arguments, module.forward(cli::deep_copy(arguments))});
    }
  }

  // Makes call number `index`, counted round, and compares.
  void check(const Module& module, size_t index, Failures& failures) const {
    const Call& call = calls_[index % calls_.size()];
    try {
      const c10::IValue answer = module.forward(cli::deep_copy(call.arguments));
      // Sums may be split among threads differently from call to call.
      for (const auto& mismatch : cli::compare(answer, call.answer, {.rtol = 1e-5, .atol = 1e-6})) {
        failures.add(cli::to_string(mismatch));
      }
    } catch (const std::exception& failure) {
      failures.add(failure.what());
    }
  }
  size_t size() const { return calls_.size(); }

 private:
  std::vector<Call> calls_;
};

class SharedModule : public ::testing::TestWithParam<const char*> {};

TEST_P(SharedModule, AnswersRightToAllThreads) {
  const KnownCalls calls = KnownCalls::of_model(GetParam());
  const Module module = load(model_file(GetParam()));
  Failures failures;
  run_threads(kCallers, [&](int thread) {
    for (int i = 0; i < kCallsPerThread; ++i) {
      calls.check(module, static_cast<size_t>(i + thread), failures);
    }
  });
  failures.expect_none();
  const Explanation explanation = module.method("forward").explain();
  const Counters& counters = explanation.counters;
  EXPECT_EQ(counters.invocations, static_cast<uint64_t>(kCallers * kCallsPerThread));
  // A call by a recording asks for no plan. A call that is recorded runs twice.
  const uint64_t runs = counters.cache_hits + counters.cache_misses + explanation.recorded.by_plan;
  EXPECT_GE(runs, counters.invocations);
  EXPECT_LE(runs, counters.invocations + explanation.recorded.recorded);
}

// All threads make the first call at once: one executor and one plan are made.
TEST_P(SharedModule, AnswersRightWhenAllThreadsCallFirst) {
  const KnownCalls calls = KnownCalls::of_model(GetParam());
  for (int round = 0; round < 25; ++round) {
    const Module module = load(model_file(GetParam()));
    Failures failures;
    run_threads(kCallers, [&](int thread) { calls.check(module, static_cast<size_t>(thread), failures); });
    failures.expect_none();
    EXPECT_EQ(module.method("forward").explain().counters.invocations, static_cast<uint64_t>(kCallers));
  }
}

// Ten shapes of a model's argument.
std::vector<std::vector<c10::IValue>> arguments_of_ten_shapes(const std::string& model) {
  std::vector<std::vector<c10::IValue>> inputs;
  for (int64_t i = 0; i < 10; ++i) {
    inputs.push_back({model == "mlp" ? at::rand({1 + i, 16}) : at::rand({2 + i % 4, 1 + i, 10})});
  }
  return inputs;
}

// Plans are specialized, kernels compiled and arenas laid out while all threads call with shapes of their own.
TEST_P(SharedModule, AnswersRightToTenShapesFromItsFirstCallOn) {
  constexpr size_t kRounds = 8;
  const at::NoGradGuard no_grad;
  at::manual_seed(0);
  const KnownCalls calls(load(model_file(GetParam()), Options().optimize(false)), arguments_of_ten_shapes(GetParam()));
  for (const CompileMode mode : {CompileMode::kBackground, CompileMode::kBlocking}) {
    const Module module = load(model_file(GetParam()), Options().compile(mode));
    Failures failures;
    run_threads(kCallers, [&](int thread) {
      const at::NoGradGuard no_grad_here;
      for (size_t i = 0; i < kRounds * calls.size(); ++i) {
        calls.check(module, i + static_cast<size_t>(thread), failures);
      }
    });
    module.method("forward").wait_for_compiles();
    failures.expect_none();
    const Explanation explanation = module.method("forward").explain();
    EXPECT_EQ(explanation.counters.invocations, kCallers * kRounds * calls.size());
    EXPECT_EQ(explanation.counters.refusals, 0U);
  }
}

// A thread that explains and clears the cache disturbs no other.
TEST_P(SharedModule, AnswersRightWhileItsCacheIsClearedAndExplained) {
  const KnownCalls calls = KnownCalls::of_model(GetParam());
  const Module module = load(model_file(GetParam()));
  Failures failures;
  std::atomic<int> callers_left{kCallers - 2};
  run_threads(kCallers, [&](int thread) {
    if (thread == 0) {
      while (callers_left.load() > 0) {
        module.method("forward").clear_cache();
      }
    } else if (thread == 1) {
      while (callers_left.load() > 0) {
        const Explanation explanation = module.method("forward").explain();
        if (explanation.plans.empty() || explanation.plans[0].text.empty()) {
          failures.add("explain() without a plan");
        }
      }
    } else {
      for (int i = 0; i < kCallsPerThread / 4; ++i) {
        calls.check(module, static_cast<size_t>(i + thread), failures);
      }
      callers_left.fetch_sub(1);
    }
  });
  failures.expect_none();
}

INSTANTIATE_TEST_SUITE_P(Models, SharedModule, ::testing::Values("mlp", "lstm_loop"),
                         [](const auto& model) { return std::string(model.param); });

// Some threads get exceptions, of the script's own and of operators; the others' calls on the same module go on.
TEST(RaisingMethods, LeaveOtherThreadsAlone) {
  const KnownCalls calls = KnownCalls::of_model("control_flow");
  const Module module = load(model_file("control_flow"));
  const at::Tensor small = at::zeros({2, 8});
  const at::Tensor large = at::full({2, 8}, 5.0);
  const at::Tensor quiet = module.run_method("raises", {small, 1.0}).toTensor();
  Failures failures;
  const auto expect_raise = [&](const std::string& method, std::vector<c10::IValue> arguments, const std::string& message) {
    try {
      module.run_method(method, std::move(arguments));
      failures.add(method + " did not raise");
    } catch (const std::exception& failure) {
      if (std::string(failure.what()).find(message) == std::string::npos) {
        failures.add(method + " raised something else: " + failure.what());
      }
    }
  };
  run_threads(kCallers, [&](int thread) {
    for (int i = 0; i < 300; ++i) {
      if (thread % 2 == 0) {
        calls.check(module, static_cast<size_t>(i), failures);
        continue;
      }
      expect_raise("raises", {large, 1.0}, "found a value above");
      expect_raise("multiplies", {at::zeros({2, 3}), at::zeros({2, 3})}, "mat1 and mat2");
      expect_raise("picks", {c10::List<int64_t>({1, 2}), 7}, "out of range");
      if (!module.run_method("raises", {small, 1.0}).toTensor().equal(quiet)) {
        failures.add("the call after an exception is wrong");
      }
    }
  });
  failures.expect_none();
}

// Arguments of one method that differ in rank, dims of size 1, strides and requires_grad: a spec each.
std::vector<std::vector<c10::IValue>> arguments_of_many_specs() {
  std::vector<std::vector<c10::IValue>> inputs;
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{16}, {4, 16}, {1, 16}, {2, 3, 16}, {1, 3, 16}, {2, 1, 2, 16}}) {
    inputs.push_back({at::rand(sizes)});
    inputs.push_back({at::rand(sizes).requires_grad_()});
  }
  inputs.push_back({at::rand({16, 4}).t()});
  return inputs;
}

class SmallCache : public ::testing::TestWithParam<size_t> {};

TEST_P(SmallCache, AnswersRightWhilePlansAreEvicted) {
  at::manual_seed(0);
  const Module module = load(model_file("mlp"), Options().plan_cache_capacity(GetParam()));
  const KnownCalls calls(load(model_file("mlp")), arguments_of_many_specs());
  Failures failures;
  run_threads(kCallers, [&](int thread) {
    for (int i = 0; i < kCallsPerThread / 4; ++i) {
      calls.check(module, static_cast<size_t>(i * (thread + 1)), failures);
    }
  });
  failures.expect_none();
  const Explanation explanation = module.method("forward").explain();
  EXPECT_GT(explanation.counters.evictions, 0U);
  EXPECT_LE(explanation.plans[0].specs.size(), GetParam());
  std::cout << calls.size() << " specs, " << explanation.counters.cache_hits << " hits, " << explanation.counters.evictions
            << " evictions\n";
}

INSTANTIATE_TEST_SUITE_P(Capacities, SmallCache, ::testing::Values(1, 2));

// ---- loading and unloading ------------------------------------------------------------------------------------------

double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

// SCONCE_CYCLES: how often, 200 if it is not set.
TEST(LoadAndUnload, DoesNotGrow) {
  const auto cycles = static_cast<int>(environment_number("SCONCE_CYCLES", 200));
  const KnownCalls calls = KnownCalls::of_model("lstm_loop");
  Failures failures;
  const auto cycle = [&](int i) {
    const Module module = load(model_file("lstm_loop"));
    calls.check(module, static_cast<size_t>(i), failures);
  };
  for (int i = 0; i < 20; ++i) {
    cycle(i);
  }
  const double before = resident_megabytes();
  for (int i = 0; i < cycles; ++i) {
    cycle(i);
  }
  const double grown = resident_megabytes() - before;
  failures.expect_none();
#if defined(__SANITIZE_ADDRESS__)
  const double allowed = 300;  // it keeps up to 256 MB of freed memory in quarantine
#else
  const double allowed = 30;
#endif
  EXPECT_LT(grown, allowed);
  std::cout << "grown by " << grown << " MB in " << cycles << " cycles\n";
}

}  // namespace
}  // namespace sconce::testing
