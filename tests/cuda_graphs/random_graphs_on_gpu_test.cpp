// Generated graphs on the simulated GPU: plans that capture ranges of their steps, and LibTorch's interpreter, agree in
// everything about a call.
//
//   SCONCE_GRAPHS=20000 build/release/tests/cuda_graphs_test --gtest_filter='RandomGraphsOnGpu.*'    more of them
//   SCONCE_SEED=17 …                                                                               this one alone
//   SCONCE_SEED=17 SCONCE_GRAPHS=100 …                                                             a hundred from it on
//   SCONCE_EXACT=1 …, SCONCE_NO_CUDA_GRAPHS=1 …                                                    with exact kernels, or no
//   replays
#include "tests/differential/observed_call.h"
#include "tests/simulated_gpu/simulated_gpu.h"
#include "tests/support/environment_number.h"
#include "tests/support/graph_generator.h"
#include "tests/support/graph_shrinker.h"
#include "tests/support/graphs.h"
#include "tests/support/torch_graph.h"
#include "tools/sconce/values/deep_copy.h"

#include "ir/text/parse.h"

#include <sconce/graph_executor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <regex>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

const c10::Device kGraphsGpu(c10::kCUDA, 0);

// Numbers of calls for make_arguments: those of equal strides and optionals come often enough to be replayed, between
// others. The numbers are also values of ints, and every second one of bools.
constexpr int kCalls[] = {1, 1, 1, 4, 1, 3, 3, 2, 3, 5, 1, 2, 2, 4, 4, 4, 3, 1, 6, 5};

constexpr cli::CompareOptions kTolerance{.rtol = 1e-4, .atol = 1e-5};

class RandomGraphsOnGpu : public ::testing::Test {
 protected:
  struct Share {
    size_t ranges = 0;
    uint64_t replays = 0;
    size_t calls = 0;
    size_t raised = 0;
  };

  // Returns what differs in the calls of the graph.
  static std::vector<std::string> findings_of(const Graph& graph, const GeneratedGraph& generated, const Options& options,
                                              Share& share) {
    std::vector<std::string> found;
    TorchGraph oracle(testing::text_of(graph));
    GraphExecutor executor(graph.clone(), "generated", options);
    size_t position = 0;
    for (const int call : kCalls) {
      // Values of their own in each call.
      GeneratedGraph numbered = generated;
      numbered.seed += 7 * 64 * 2 * ++position;
      const std::vector<c10::IValue> arguments =
          cli::deep_copy_to(make_arguments(numbered, call, /*requires_grad=*/false), kGraphsGpu);
      const uint64_t seed = generated.seed + position;
      const ObservedCall expected = observe_call(arguments, seed, [&](auto& stack) { oracle.interpret(stack); });
      const ObservedCall got = observe_call(arguments, seed, [&](auto& stack) { executor.run(stack); });
      ++share.calls;
      share.raised += expected.error ? 1 : 0;
      for (const std::string& line : differences(got, expected, Strictness::kEverything, kTolerance)) {
        if (!tells_other_versions_alone(line)) {
          found.push_back("call " + std::to_string(position) + ": " + line);
        }
      }
      if (!found.empty()) {
        break;
      }
    }
    for (const PlanExplanation& plan : executor.explain().plans) {
      for (const RecordedExplanation& range : plan.recorded) {
        ++share.ranges;
        share.replays += range.replays;
      }
    }
    return found;
  }

  // A capture counts the writes of a run as one.
  static bool tells_other_versions_alone(const std::string& line) {
    static const std::regex form("(.*), version ([0-9]+) instead of (.*), version ([0-9]+)");
    std::smatch parts;
    return std::regex_match(line, parts, form) && (parts[2] == "0") == (parts[4] == "0") &&
           parts[1].str().ends_with(parts[3].str());
  }

  static std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
      text += "  " + line + "\n";
    }
    return text;
  }

  void expect_agreement(const std::string& test, const Options& options) {
    const bool is_chosen = std::getenv("SCONCE_SEED") != nullptr;
    const uint64_t first = environment_number("SCONCE_SEED", 1);
    const uint64_t end = first + environment_number("SCONCE_GRAPHS", is_chosen ? 1 : 150);
    Share total;
    size_t failures = 0;
    for (uint64_t seed = first; seed < end && failures < 3; ++seed) {
      const GeneratedGraph generated = generate_graph(seed);
      const std::unique_ptr<Graph> graph = parse(generated.text);
      const std::vector<std::string> findings = findings_of(*graph, generated, options, total);
      if (!findings.empty()) {
        ++failures;
        ADD_FAILURE() << "seed " << seed << "\n"
                      << joined(findings) << testing::text_of(*graph) << "Again: SCONCE_SEED=" << seed
                      << " build/release/tests/cuda_graphs_test --gtest_filter=RandomGraphsOnGpu." << test << "\n";
        Share unused;
        const auto small = shrink(
            *graph, [&](const Graph& candidate) { return !findings_of(candidate, generated, options, unused).empty(); });
        std::cout << "A minimal one:\n"
                  << testing::text_of(*small) << joined(findings_of(*small, generated, options, unused));
      }
    }
    std::cout << end - first << " graphs with " << total.ranges << " ranges; " << total.replays << " replays in "
              << total.calls << " calls, " << total.raised << " of which raise\n";
    EXPECT_TRUE(is_chosen || total.replays * 2 >= total.calls);
    EXPECT_THAT(gpu_.driver().misuse(), ::testing::IsEmpty());
  }

  SimulatedGpu gpu_;
};

TEST_F(RandomGraphsOnGpu, AgreeWithTheInterpreter) {
  const Options options = Options()
                              .compile(CompileMode::kBlocking)
                              .exact(std::getenv("SCONCE_EXACT") != nullptr)
                              .cuda_graphs(std::getenv("SCONCE_NO_CUDA_GRAPHS") == nullptr);
  expect_agreement("AgreeWithTheInterpreter", options);
}

TEST_F(RandomGraphsOnGpu, AgreeWithTheInterpreterWithoutKernels) {
  Options options = Options().compile(CompileMode::kBlocking);
  options.passes().disable("form_groups");
  expect_agreement("AgreeWithTheInterpreterWithoutKernels", options);
}

}  // namespace
}  // namespace sconce::testing
