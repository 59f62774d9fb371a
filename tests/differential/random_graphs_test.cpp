// Generated graphs on sconce and on LibTorch's interpreter: everything about a call must agree.
//
//   SCONCE_GRAPHS=20000 build/release/tests/differential_test --gtest_filter='RandomGraphs.*'    more of them
//   SCONCE_SEED=17 …                                                                             this one alone
//   SCONCE_SEED=17 SCONCE_GRAPHS=100 …                                                           a hundred from this one on
#include "tests/differential/observed_call.h"
#include "tests/differential/traced_graph.h"
#include "tests/support/environment_number.h"
#include "tests/support/graph_generator.h"
#include "tests/support/graph_shrinker.h"
#include "tests/support/graphs.h"
#include "tests/support/part.h"
#include "tests/support/torch_graph.h"

#include "executor/stages.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "lower/lower.h"
#include "pipeline/partition_for_backend.h"
#include "pipeline/pass_list.h"
#include "pipeline/pass_runner.h"
#include "plan/run_plan.h"

#include <sconce/compiled_backward.h>
#include <sconce/graph_executor.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <unordered_set>

namespace sconce::testing {
namespace {

constexpr int kCalls = 3;
// Op after op on the same bytes: the same bits.
constexpr cli::CompareOptions kExact{.rtol = 0, .atol = 0};
// Of merged nodes the gradients are added up in another order.
constexpr cli::CompareOptions kGradients{.rtol = 1e-5, .atol = 1e-6};
// LibTorch's own optimizations move results by a few ulp, and its symbolic gradients more; so do passes that round.
constexpr cli::CompareOptions kOptimized{.rtol = 1e-4, .atol = 1e-5};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += "  " + line + "\n";
  }
  return text;
}

struct Tolerance {
  cli::CompareOptions values = kExact;
  // Backward may find a result as it was where eager finds it written, and raises.
  bool keeps_what_writes_spoil = false;
  Strictness strictness = Strictness::kEverything;
};

// One graph against the oracle.
class GraphCheck {
 public:
  GraphCheck(const Graph& graph, const GeneratedGraph& generated) : graph_(graph), generated_(generated) {
    TorchGraph oracle(testing::text_of(graph));
    for (const bool requires_grad : {false, true}) {
      for (int call = 1; call <= kCalls; ++call) {
        const std::vector<c10::IValue> arguments = make_arguments(generated, call, requires_grad);
        ObservedCall expected = observe_call(arguments, seed_of(call), [&](auto& stack) { oracle.interpret(stack); });
        if (loses_a_value(expected)) {
          oracle_lost_a_value_ = true;
          continue;
        }
        calls_.push_back({call, requires_grad, arguments, std::move(expected)});
      }
    }
  }

  // Rare: an operator in place on a leaf that requires a gradient.
  std::optional<std::string> error_of_oracle() const {
    for (const Call& call : calls_) {
      if (call.expected.error) {
        return call.expected.error;
      }
    }
    return std::nullopt;
  }
  size_t calls_whose_backward_raises() const {
    return static_cast<size_t>(
        std::count_if(calls_.begin(), calls_.end(), [](const Call& c) { return c.expected.gradient_error.has_value(); }));
  }
  size_t calls_with_gradients() const {
    return static_cast<size_t>(
        std::count_if(calls_.begin(), calls_.end(), [](const Call& c) { return !c.expected.gradients.empty(); }));
  }

  std::vector<std::string> run() {
    check_text();
    check_executor("optimized executor", Options().exact(true).compile(CompileMode::kNever));
    check_executor("specialized executor", Options().exact(true).compile(CompileMode::kBlocking));
    check_executor("executor with differentiable subgraphs",
                   Options().compile(CompileMode::kBlocking).min_differentiable_nodes(1),
                   {.values = kOptimized, .keeps_what_writes_spoil = true});
    check_executor("executor without optimization", Options().optimize(false));
    for (const PassInfo& pass : all_passes()) {
      check_transformed("after pass " + std::string(pass.name),
                        [&](auto& graph) { PassRunner(PassRunner::Verify::kAfterChange).run(pass, *graph); },
                        {.values = pass.changes_rounding ? kOptimized : kExact,
                         .keeps_what_writes_spoil = pass.name == "remove_tensor_mutation" || pass.name == "differentiate"});
    }
    std::unique_ptr<Graph> required = graph_.clone();
    PassRunner runner(PassRunner::Verify::kAfterChange);
    run_stage(Stage::kRequired, required, runner);
    check_optimized(*required, "");
    for (const PassInfo& pass : all_passes()) {
      if (pass.stage != Stage::kRequired) {
        check_optimized(*required, std::string(pass.name));
      }
    }
    check_transformed("without passes", [](auto&) {});
    check_transformed("with claimed subgraphs", [](auto& graph) { delegate_everything(*graph); });
    check_transformed("after all required passes", [&](auto& graph) { graph = required->clone(); });
    return std::move(found_);
  }

  using Transform = std::function<void(std::unique_ptr<Graph>&)>;
  std::vector<std::string> run_after(const std::string& pass, const Transform& transform) {
    check_transformed("after " + pass, transform);
    return std::move(found_);
  }

  // LibTorch's optimizing executor against ours, in the calls where it agrees with LibTorch's interpreter. It doesn't
  // always: it makes writes to elements of a list functional although the list still holds the operand, and removes random
  // operators whose results are unused, so that the others draw different numbers.
  std::vector<std::string> run_against_optimising_peer() {
    TorchGraph peer(testing::text_of(graph_));
    GraphExecutor executor(graph_.clone(), "generated", Options().exact(true));
    for (const Call& call : calls_) {
      const ObservedCall peers =
          observe_call(call.arguments, seed_of(call.number), [&](auto& stack) { peer.execute(stack); });
      const ObservedCall got = observe_call(call.arguments, seed_of(call.number), [&](auto& stack) { executor.run(stack); });
      if (takes_view_for_leaf(got) && !call.expected.error) {
        ++calls_that_take_a_view_for_a_leaf_;
      } else if (differences(peers, call.expected, Strictness::kValues, kOptimized).empty()) {
        ++calls_where_the_peer_is_right_;
        note("against LibTorch's default executor", call, differences(got, peers, Strictness::kValues, kOptimized));
      }
    }
    return std::move(found_);
  }
  // A traced function that runs the graph operator by operator: the call that records, and two of the plan.
  std::vector<std::string> run_traced() {
    GraphExecutor executor(graph_.clone(), "generated", Options().optimize(false));
    for (const Call& call : calls_) {
      const TracedGraph traced([&](auto& stack) { executor.run(stack); }, call.arguments);
      for (const char* who : {"while it is recorded", "from the trace", "from the trace, again"}) {
        const ObservedCall got = observe_call(call.arguments, seed_of(call.number), [&](auto& stack) { traced.run(stack); });
        if (!takes_view_for_leaf(got) || call.expected.error) {
          note(who, call, differences(got, call.expected, Strictness::kValues, kOptimized, kGradients));
        }
      }
      replayed_ += traced.is_replayed() ? 1 : 0;
    }
    return std::move(found_);
  }
  // Backward by plan: the backward that records, and two of its plan.
  std::vector<std::string> run_with_compiled_backward() {
    GraphExecutor executor(graph_.clone(), "generated", Options().optimize(false));
    for (const Call& call : calls_) {
      if (!call.requires_grad) {
        continue;
      }
      const CompiledBackward scope(Options().compile(CompileMode::kBlocking));
      for (const char* who : {"backward that is recorded", "backward by plan", "backward by plan, again"}) {
        const ObservedCall got =
            observe_call(call.arguments, seed_of(call.number), [&](auto& stack) { executor.run(stack); });
        if (!takes_view_for_leaf(got) || call.expected.error) {
          note(who, call, differences(got, call.expected, Strictness::kEverything, kExact, kGradients));
        }
      }
      replayed_ += scope.explain().by_plan > 0 ? 1 : 0;
    }
    return std::move(found_);
  }
  size_t replayed() const { return replayed_; }

  size_t calls_where_the_peer_is_right() const { return calls_where_the_peer_is_right_; }
  size_t calls() const { return calls_.size(); }
  bool oracle_lost_a_value() const { return oracle_lost_a_value_; }
  bool took_a_view_for_a_leaf() const { return calls_that_take_a_view_for_a_leaf_ > 0; }

 private:
  struct Call {
    int number;
    bool requires_grad;
    std::vector<c10::IValue> arguments;
    ObservedCall expected;
  };

  uint64_t seed_of(int call) const { return generated_.seed + static_cast<uint64_t>(call); }

  void note(const std::string& who, const Call& call, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      found_.push_back(who + ", call " + std::to_string(call.number) + (call.requires_grad ? " with gradients: " : ": ") +
                       line);
    }
  }

  void compare_calls(const std::string& who, const RunGraph& run, int last_call = kCalls, const Tolerance& tolerance = {}) {
    for (const Call& call : calls_) {
      if (call.number > last_call) {
        continue;
      }
      const ObservedCall got = observe_call(call.arguments, seed_of(call.number), run);
      if (takes_view_for_leaf(got) && !call.expected.error) {
        ++calls_that_take_a_view_for_a_leaf_;
        continue;
      }
      ObservedCall expected = call.expected;
      if (tolerance.keeps_what_writes_spoil && !got.gradient_error && expected.gradient_error &&
          expected.gradient_error->find("has been modified by an inplace operation") != std::string::npos) {
        expected.gradient_error.reset();
        expected.gradients = got.gradients;
      }
      note(who, call, differences(got, expected, tolerance.strictness, tolerance.values, kGradients));
    }
  }

  // A view made before its base came to require a gradient learns of it when somebody reads the view. Where that reader was
  // dead and is gone, LibTorch takes the view for a leaf and refuses to write it.
  static bool takes_view_for_leaf(const ObservedCall& call) {
    return call.error && call.error->find("a leaf Variable that requires grad") != std::string::npos;
  }

  // LibTorch's interpreter moves a value out of its register twice if a branch returns both the value and an unchanged
  // loop-carried copy of it.
  static bool loses_a_value(const ObservedCall& call) {
    return call.error && call.error->find("Expected Tensor but got None") != std::string::npos;
  }

  // By a backend that computes all that it is offered.
  static void delegate_everything(Graph& graph) {
    const auto compile = [](const std::shared_ptr<const Graph>& subgraph) -> SubgraphKernel {
      std::shared_ptr<const Plan> plan = std::move(*lower(subgraph));
      return [plan](c10::ArrayRef<c10::IValue> operands) {
        torch::jit::Stack stack = operands.vec();
        run_plan(*plan, stack, AutogradUse::kAll);
        return stack;
      };
    };
    partition_for_backend("everything",
                          {.supports = [](const Node&) { return true; }, .compile = compile, .min_nodes = 1})(graph);
  }

  void check_text() {
    const std::string text = testing::text_of(graph_);
    const auto parsed = parse(text);
    if (testing::text_of(*parsed) != text) {
      found_.push_back("print, parse, print is no fixed point");
    }
    for (const Violation& violation : find_violations(*parsed)) {
      found_.push_back("verifier, " + std::string(violation.check) + ": " + violation.message);
    }
  }

  void check_executor(const std::string& who, const Options& options, const Tolerance& tolerance = {}) {
    GraphExecutor executor(graph_.clone(), "generated", options);
    compare_calls(who, [&](auto& stack) { executor.run(stack); }, kCalls, tolerance);
  }

  void check_optimized(const Graph& required, const std::string& without) {
    check_transformed("optimized" + (without.empty() ? "" : " without pass " + without), [&](auto& graph) {
      PassPipeline passes;
      if (!without.empty()) {
        passes.disable(without);
      }
      // With all passes the graph is verified after each; with one left out, at the end.
      PassRunner runner(without.empty() ? PassRunner::Verify::kAfterChange : PassRunner::Verify::kNever, passes);
      graph = required.clone();
      run_stage(Stage::kOptimize, graph, runner);
    });
  }

  void check_transformed(const std::string& who, const Transform& transform, const Tolerance& tolerance = {}) {
    std::unique_ptr<Graph> graph = graph_.clone();
    transform(graph);
    if (!checked_.insert(testing::text_of(*graph)).second) {
      return;
    }
    for (const Violation& violation : find_violations(*graph)) {
      found_.push_back(who + ": " + std::string(violation.check) + ": " + violation.message);
    }
    const auto plan = lower(std::move(graph));
    if (!plan) {
      found_.push_back(who + ": refused: " + to_string(plan.refusal()));
      return;
    }
    // A plan keeps nothing from call to call: the first without and the first with gradients tell.
    compare_calls(who, [&](auto& stack) { run_plan(**plan, stack, AutogradUse::kAll); }, 1, tolerance);
  }

  const Graph& graph_;
  const GeneratedGraph& generated_;
  std::vector<Call> calls_;
  size_t calls_where_the_peer_is_right_ = 0;
  size_t calls_that_take_a_view_for_a_leaf_ = 0;
  size_t replayed_ = 0;  // calls whose trace has a plan
  bool oracle_lost_a_value_ = false;
  std::unordered_set<std::string> checked_;  // the texts of the graphs that were called
  std::vector<std::string> found_;
};

using CheckGraph = std::vector<std::string> (GraphCheck::*)();

// What is wrong, sconce's own exceptions included.
std::vector<std::string> findings_of(GraphCheck& check, CheckGraph check_graph) {
  try {
    return (check.*check_graph)();
  } catch (const std::exception& failure) {
    return {std::string("raises outside a call: ") + failure.what()};
  }
}

// What the shrinker makes of a divisor may be zero, which ends the process.
bool may_divide_by_zero(const Graph& graph) {
  bool may = false;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() == aten::remainder || node->kind() == aten::floordiv) {
      const auto* divisor = node->input(1)->constant();
      may = may || !divisor || !divisor->isInt() || divisor->toInt() == 0;
    }
  });
  return may;
}

std::unique_ptr<Graph> minimal_graph(const Graph& graph, const GeneratedGraph& generated, CheckGraph check_graph) {
  return shrink(graph, [&](const Graph& candidate) {
    if (may_divide_by_zero(candidate)) {
      return false;
    }
    GraphCheck check(candidate, generated);
    return !check.error_of_oracle() && !findings_of(check, check_graph).empty();
  });
}

// A pass that is wrong: it drops the first write.
bool drop_a_write(Graph& graph) {
  Node* write = nullptr;
  for_each_node(graph.body(), [&](Node* node) {
    if (write == nullptr && node->schema() != nullptr && node->schema()->is_mutable() && node->outputs().size() == 1 &&
        *node->output()->type() == *node->input(0)->type()) {
      write = node;
    }
  });
  if (write == nullptr) {
    return false;
  }
  write->output()->replace_all_uses_with(write->input(0));
  write->erase();
  return true;
}

std::string report(uint64_t seed, const std::string& test, const std::vector<std::string>& findings, const Graph& graph) {
  return "seed " + std::to_string(seed) + "\n" + joined(findings) + "The graph:\n" + testing::text_of(graph) +
         "Again: SCONCE_SEED=" + std::to_string(seed) +
         " build/release/tests/differential_test --gtest_filter=RandomGraphs." + test + "\n";
}

Seeds seeds(uint64_t share) {
  if (std::getenv("SCONCE_SEED") != nullptr) {
    return {environment_number("SCONCE_SEED", 0), environment_number("SCONCE_GRAPHS", 1)};
  }
  return seeds_in_part({1, environment_number("SCONCE_GRAPHS", 1000) / share});
}

constexpr size_t kMaxDisagreements = 5;  // reports are long
constexpr uint64_t kManySeeds = 80;      // fewer tell nothing of shares

TEST(RandomGraphs, AgreeWithTheInterpreterAsTheyAreAndAfterEachPass) {
  const Seeds range = seeds(1);
  size_t failures = 0;
  size_t nodes = 0;
  size_t with_gradients = 0;
  size_t backward_raises = 0;
  size_t raising = 0;
  size_t views_for_leaves = 0;
  size_t lost_values = 0;
  for (uint64_t seed = range.first; seed < range.end() && failures < kMaxDisagreements; ++seed) {
    const GeneratedGraph generated = generate_graph(seed);
    const std::unique_ptr<Graph> graph = parse(generated.text);
    const auto violations = find_violations(*graph);
    ASSERT_TRUE(violations.empty()) << "seed " << seed << ": " << violations.front().message << "\n" << generated.text;
    GraphCheck check(*graph, generated);
    raising += check.error_of_oracle() ? 1 : 0;
    nodes += graph->node_count();
    with_gradients += check.calls_with_gradients();
    backward_raises += check.calls_whose_backward_raises();
    const auto findings = findings_of(check, &GraphCheck::run);
    views_for_leaves += check.took_a_view_for_a_leaf() ? 1 : 0;
    lost_values += check.oracle_lost_a_value() ? 1 : 0;
    if (!findings.empty()) {
      ++failures;
      // First what is certain: a graph on the way to the minimal one may crash LibTorch.
      ADD_FAILURE() << report(seed, "AgreeWithTheInterpreterAsTheyAreAndAfterEachPass", findings, *graph);
      std::cout << "A minimal one:\n" << testing::text_of(*minimal_graph(*graph, generated, &GraphCheck::run));
    }
  }
  std::cout << range.count << " graphs from seed " << range.first << " on, " << nodes << " nodes, " << with_gradients
            << " calls with gradients, in " << backward_raises << " calls backward raises (on both sides), in " << raising
            << " graphs a call; in " << views_for_leaves << " LibTorch takes a view for a leaf, in " << lost_values
            << " its interpreter loses a value\n";
  EXPECT_LE(lost_values, 1 + range.count / 1000);
  EXPECT_LE(views_for_leaves, 1 + range.count / 100);
  EXPECT_LE(raising, 1 + range.count / 100) << "the generator should make graphs that run";
}

TEST(RandomGraphs, AgreeWithTheOptimisingExecutor) {
  const Seeds range = seeds(10);
  size_t failures = 0;
  size_t calls = 0;
  size_t peer_is_right = 0;
  for (uint64_t seed = range.first; seed < range.end() && failures < kMaxDisagreements; ++seed) {
    const GeneratedGraph generated = generate_graph(seed);
    const std::unique_ptr<Graph> graph = parse(generated.text);
    GraphCheck check(*graph, generated);
    const auto findings = findings_of(check, &GraphCheck::run_against_optimising_peer);
    calls += check.calls();
    peer_is_right += check.calls_where_the_peer_is_right();
    if (!findings.empty()) {
      ++failures;
      ADD_FAILURE() << report(seed, "AgreeWithTheOptimisingExecutor", findings, *graph) << "A minimal one:\n"
                    << testing::text_of(*minimal_graph(*graph, generated, &GraphCheck::run_against_optimising_peer));
    }
  }
  std::cout << "compared in " << peer_is_right << " of " << calls
            << " calls; in the others LibTorch disagrees with itself\n";
  if (range.count >= kManySeeds) {
    EXPECT_GE(peer_is_right * 2, calls);
  }
}

// `check_graph` counts the calls that plans of recorded graphs serve.
void expect_agreement_of_recorded(const std::string& test, CheckGraph check_graph) {
  const Seeds range = seeds(8);
  size_t failures = 0;
  size_t calls = 0;
  size_t replayed = 0;
  for (uint64_t seed = range.first; seed < range.end() && failures < kMaxDisagreements; ++seed) {
    const GeneratedGraph generated = generate_graph(seed);
    const std::unique_ptr<Graph> graph = parse(generated.text);
    GraphCheck check(*graph, generated);
    const auto findings = findings_of(check, check_graph);
    calls += check.calls();
    replayed += check.replayed();
    if (!findings.empty()) {
      ++failures;
      ADD_FAILURE() << report(seed, test, findings, *graph);
      std::cout << "A minimal one:\n" << testing::text_of(*minimal_graph(*graph, generated, check_graph));
    }
  }
  std::cout << replayed << " of " << calls << " calls have a plan\n";
  if (range.count >= kManySeeds) {
    EXPECT_GE(replayed * 5, calls);
  }
}

TEST(RandomGraphs, AgreeWhenTheyAreTraced) {
  expect_agreement_of_recorded("AgreeWhenTheyAreTraced", &GraphCheck::run_traced);
}

TEST(RandomGraphs, AgreeWithCompiledBackward) {
  expect_agreement_of_recorded("AgreeWithCompiledBackward", &GraphCheck::run_with_compiled_backward);
}

// What the tests above are worth: many graphs with a write tell that it is missing (not those whose result is unobservable),
// and the shrunk graph shows little else.
TEST(RandomGraphs, TellWhenAPassDropsAWriteAndShrinkToIt) {
  constexpr size_t kShrunk = 6;
  size_t with_writes = 0;
  size_t noticed = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const GeneratedGraph generated = generate_graph(seed);
    const std::unique_ptr<Graph> graph = parse(generated.text);
    const auto is_noticed = [&](const Graph& candidate) {
      GraphCheck check(candidate, generated);
      return !check.error_of_oracle() &&
             !check.run_after("drop_a_write", [](auto& changed) { drop_a_write(*changed); }).empty();
    };
    with_writes += drop_a_write(*graph->clone()) ? 1 : 0;
    if (is_noticed(*graph) && ++noticed <= kShrunk) {
      const std::unique_ptr<Graph> small = shrink(*graph, is_noticed, 400);
      EXPECT_LE(small->node_count(), 12U) << "seed " << seed << "\n" << testing::text_of(*small);
      if (noticed == 1) {
        std::cout << "the write that seed " << seed << " misses, of " << graph->node_count() << " nodes:\n"
                  << testing::text_of(*small);
      }
    }
  }
  EXPECT_GE(noticed * 5, with_writes * 2);
  std::cout << noticed << " of " << with_writes << " graphs with writes tell\n";
}

TEST(RandomGraphs, AreTheSameForTheSameSeed) {
  EXPECT_EQ(generate_graph(5).text, generate_graph(5).text);
  EXPECT_NE(generate_graph(5).text, generate_graph(6).text);
}

}  // namespace
}  // namespace sconce::testing
