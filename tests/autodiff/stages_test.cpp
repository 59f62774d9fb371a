// Runs every case of tests/autodiff/stages/*.ir: one file per stage of differentiation.
//
//   # case: name
//   graph(…): …             the input
//   ---
//   …                       what the stage decides
//
// SCONCE_UPDATE_EXPECTATIONS=1 rewrites the expectations; review reads the diff.
#include "tests/support/graphs.h"

#include "autodiff/joint/joint_graph.h"
#include "autodiff/select/slice.h"
#include "autodiff/split/split_joint_graph.h"
#include "ir/text/gradient_text.h"
#include "ir/text/print.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace sconce {
namespace {

using testing::graph_of;
using testing::text_of;

// The slices as lists of nodes, and why other nodes that gradients flow through are in none.
std::string slice_text(const std::string& input) {
  const auto graph = graph_of(input);
  const Roles roles(*graph);
  const DifferentiableSlices found = slice_differentiable(*graph, roles, /*min_nodes=*/2);
  std::ostringstream text;
  for (size_t i = 0; i < found.slices.size(); ++i) {
    text << "slice " << i << "\n";
    for (const Node* node : found.slices[i].nodes) {
      text << "  " << print_node_line(*node) << (roles.of(*node) == Role::kAuxiliary ? "  # auxiliary" : "") << "\n";
    }
  }
  for (const auto& [node, reason] : found.outside) {
    text << "outside: " << print_node_line(*node) << "  # " << to_string(reason) << "\n";
  }
  return text.str();
}

std::string joint_text(const std::string& input) {
  const JointGraph joint = differentiate_forward(graph_of(input));
  return print_gradient(joint.signature) + "\n" + text_of(*joint.graph);
}

std::string split_text(const std::string& input) {
  const DifferentiableGraphs split = split_joint_graph(differentiate_forward(graph_of(input)));
  return print_gradient(split.signature) + "\n" + text_of(*split.forward) + "Backward = " + text_of(*split.backward);
}

struct Stage {
  const char* name;
  std::string (*decide)(const std::string& input);
};

struct StageCase {
  std::string name;
  std::string input;
  std::string expected;
};

std::string path_of(const Stage& stage) { return testing::tests_dir() + "/autodiff/stages/" + stage.name + ".ir"; }

std::vector<StageCase> read_cases(const Stage& stage) {
  const std::string key = "# case: ";
  std::vector<StageCase> cases;
  std::istringstream lines(testing::read_text(path_of(stage)));
  bool is_expected = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) {
      cases.push_back({line.substr(key.size()), "", ""});
      is_expected = false;
    } else if (line == "---") {
      is_expected = true;
    } else if (!cases.empty() && !line.empty()) {
      (is_expected ? cases.back().expected : cases.back().input) += line + "\n";
    }
  }
  return cases;
}

class DifferentiationStage : public ::testing::TestWithParam<Stage> {};

TEST_P(DifferentiationStage, DecidesAsItsTextSays) {
  const Stage& stage = GetParam();
  const std::vector<StageCase> cases = read_cases(stage);
  ASSERT_FALSE(cases.empty()) << path_of(stage);
  std::string rewritten;
  for (const StageCase& test : cases) {
    const std::string decided = stage.decide(test.input);
    rewritten += (rewritten.empty() ? "" : "\n") + ("# case: " + test.name) + "\n" + test.input + "---\n" + decided;
    if (std::getenv("SCONCE_UPDATE_EXPECTATIONS") == nullptr) {
      EXPECT_EQ(decided, test.expected) << stage.name << ", " << test.name;
    }
  }
  if (std::getenv("SCONCE_UPDATE_EXPECTATIONS") != nullptr) {
    std::ofstream(path_of(stage)) << rewritten;
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, DifferentiationStage,
                         ::testing::Values(Stage{"slice", slice_text}, Stage{"joint", joint_text},
                                           Stage{"split", split_text}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sconce
