// src/autodiff/README.md differentiates one loop; its blocks are what the code gives.
#include "tests/docs/tagged_page.h"
#include "tests/support/graphs.h"

#include "analysis/cut_out.h"
#include "autodiff/differentiate.h"
#include "autodiff/joint/joint_graph.h"
#include "autodiff/select/slice.h"
#include "executor/stages.h"
#include "ir/differentiable.h"
#include "ir/text/gradient_text.h"
#include "ir/text/print.h"
#include "passes/simplify/propagate_facts.h"

#include <gtest/gtest.h>

namespace sconce {
namespace {

using testing::text_of;

// The graph of the source, optimized, for tensors of the page's sizes.
std::unique_ptr<Graph> optimized_graph(const std::string& source) {
  std::unique_ptr<Graph> graph = testing::graph_of_source(source);
  PassRunner runner;
  run_stage(Stage::kRequired, graph, runner);
  run_stage(Stage::kOptimize, graph, runner);
  for (const auto& [name, sizes] : std::map<std::string, std::vector<Dim>>{{"x.1", {Dim::known(2), Dim::known(3)}},
                                                                           {"w.1", {Dim::known(3), Dim::known(3)}}}) {
    TensorFacts facts;
    facts.dtype = at::kFloat;
    facts.device = at::kCPU;
    facts.requires_grad = true;
    facts.sizes = sizes;
    testing::find_value(*graph, name)->set_facts(std::move(facts));
  }
  propagate_facts(*graph, InputAssumptions{.grad_mode = true});
  return graph;
}

TEST(AutodiffPage, ShowsWhatTheCodeGivesAtEveryStage) {
  testing::TaggedPage page("src/autodiff/README.md");
  std::map<std::string, std::string> texts;
  const std::unique_ptr<Graph> graph = optimized_graph(page.block("python"));
  texts["ir graph"] = text_of(*graph);

  const DifferentiableSlices slices = slice_differentiable(*graph, Roles(*graph), /*min_nodes=*/2);
  ASSERT_EQ(slices.slices.size(), 1U);
  for (const Node* node : slices.slices[0].nodes) {
    texts["ir slice"] += print_node_line(*node) + "\n";
  }
  const JointGraph joint = differentiate_forward(cut_out(slices.slices[0].nodes, graph->outputs()).subgraph);
  texts["ir joint"] = text_of(*joint.graph);

  ASSERT_TRUE(differentiate(*graph));
  const Node& node = *testing::find_node(*graph, "sconce::differentiable");
  texts["text signature"] = print_gradient(gradient_signature(node)) + "\n";
  texts["ir forward"] = text_of(*node.attribute_as<std::shared_ptr<Graph>>(attr::kSubgraph));
  texts["ir backward"] = text_of(*node.attribute_as<std::shared_ptr<Graph>>(attr::kBackward));
  page.expect_blocks(texts);
}

}  // namespace
}  // namespace sconce
