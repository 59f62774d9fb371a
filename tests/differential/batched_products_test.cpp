// decompose_ops and batch_matmul on generated graphs whose facts are known: they round, all else about a call must agree.
//
//   SCONCE_GRAPHS=20000 build/release/tests/differential_test --gtest_filter='BatchedProducts.*'    more of them
//   SCONCE_SEED=17 …                                                                                this one alone
#include "tests/differential/observed_call.h"
#include "tests/support/environment_number.h"
#include "tests/support/graph_generator.h"
#include "tests/support/graphs.h"
#include "tests/support/part.h"
#include "tests/support/spec_facts.h"
#include "tests/support/torch_graph.h"

#include "executor/stages.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "lower/lower.h"
#include "passes/matmul/batch_matmul.h"
#include "passes/matmul/decompose_ops.h"
#include "passes/simplify/eliminate_common_nodes.h"
#include "pipeline/pass_runner.h"
#include "plan/run_plan.h"

#include <gtest/gtest.h>

#include <iostream>

namespace sconce::testing {
namespace {

constexpr cli::CompareOptions kRounded{.rtol = 1e-4, .atol = 1e-5};

struct Changes {
  size_t decomposed = 0;
  size_t batched = 0;
};

std::vector<std::string> findings_of(const GeneratedGraph& generated, bool requires_grad, Changes& changes) {
  const std::unique_ptr<Graph> graph = parse(generated.text);
  const std::vector<c10::IValue> arguments = make_arguments(generated, 1, requires_grad);
  TorchGraph oracle(testing::text_of(*graph));
  const ObservedCall expected = observe_call(arguments, generated.seed, [&](auto& stack) { oracle.interpret(stack); });
  if (expected.error) {
    return {};
  }
  std::unique_ptr<Graph> known = graph->clone();
  PassRunner runner(PassRunner::Verify::kNever);
  run_stage(Stage::kRequired, known, runner);
  const InputAssumptions given = facts_of_call(*known, arguments, Sizes::kNumbers);
  propagate_facts(*known, given);

  std::vector<std::string> found;
  const auto check = [&](const std::string& who, const Graph& changed) {
    for (const Violation& violation : find_violations(changed)) {
      found.push_back(who + ": " + std::string(violation.check) + ": " + violation.message);
    }
    const auto plan = lower(changed.clone());
    if (!plan) {
      found.push_back(who + ": refused: " + to_string(plan.refusal()));
      return;
    }
    const ObservedCall got =
        observe_call(arguments, generated.seed, [&](auto& stack) { run_plan(**plan, stack, AutogradUse::kAll); });
    for (const std::string& line : differences(got, expected, Strictness::kEverything, kRounded)) {
      found.push_back(who + (requires_grad ? " with gradients: " : ": ") + line);
    }
    if (!found.empty()) {
      found.push_back(testing::text_of(changed));
    }
  };
  const std::unique_ptr<Graph> decomposed = known->clone();
  if (decompose_ops(*decomposed)) {
    ++changes.decomposed;
    check("decompose_ops", *decomposed);
  }
  propagate_facts(*decomposed, facts_of_call(*decomposed, arguments, Sizes::kNumbers));
  eliminate_common_nodes(*decomposed);
  if (batch_matmul(*decomposed, BatchWhere::kLegal)) {
    ++changes.batched;
    check("batch_matmul", *decomposed);
  }
  return found;
}

TEST(BatchedProducts, DifferFromTheInterpreterByRoundingAlone) {
  const bool is_one = std::getenv("SCONCE_SEED") != nullptr;
  const Seeds seeds =
      is_one ? Seeds{environment_number("SCONCE_SEED", 0), 1} : seeds_in_part({1, environment_number("SCONCE_GRAPHS", 250)});
  Changes changes;
  size_t failures = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end() && failures < 5; ++seed) {
    const GeneratedGraph generated = generate_graph(seed, {.mostly_products = seed % 4 != 0});
    for (const bool requires_grad : {false, true}) {
      const auto found = findings_of(generated, requires_grad, changes);
      failures += found.empty() ? 0 : 1;
      for (const std::string& line : found) {
        ADD_FAILURE() << "seed " << seed << ": " << line;
      }
    }
  }
  std::cout << seeds.count << " graphs, called without and with gradients: decomposed " << changes.decomposed
            << " times, batched " << changes.batched << " times\n";
  if (!is_one && failures == 0) {
    EXPECT_GE(changes.decomposed * 4, seeds.count);
    EXPECT_GE(changes.batched * 4, seeds.count);
  }
}

}  // namespace
}  // namespace sconce::testing
