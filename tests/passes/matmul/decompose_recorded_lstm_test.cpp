// An LSTM's layer and its gradients by products and kernels: the results of oneDNN's operators.
#include "passes/matmul/decompose_recorded_lstm.h"

#include "load/compile_op_row.h"
#include "lower/lower.h"
#include "passes/simplify/propagate_constants.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

struct RecordedLayer {
  int64_t steps;
  int64_t rows;
  int64_t features;
  int64_t hidden;
  bool is_reversed;
  bool has_biases;
  std::array<bool, 3> has_gradient;
};

std::vector<at::Tensor> operands_of(const RecordedLayer& of) {
  const auto biases = [&] { return of.has_biases ? at::randn({4 * of.hidden}) : at::zeros({4 * of.hidden, of.hidden}); };
  return {at::randn({of.steps, of.rows, of.features}),
          at::randn({4 * of.hidden, of.features}) * 0.2,
          at::randn({4 * of.hidden, of.hidden}) * 0.2,
          biases(),
          biases(),
          at::randn({of.rows, of.hidden}),
          at::randn({of.rows, of.hidden}),
          at::randn({of.steps, of.rows, of.hidden}),
          at::randn({of.rows, of.hidden}),
          at::randn({of.rows, of.hidden})};
}

std::unique_ptr<Graph> graph_of(const RecordedLayer& of, const std::vector<at::Tensor>& operands) {
  const auto text = [](bool condition) { return std::string(condition ? "True" : "False"); };
  const std::string hidden = std::to_string(of.hidden);
  const std::string settings = ", 1, " + text(of.has_biases) + ", ";
  const auto gradient = [&](size_t i, const std::string& name) { return of.has_gradient[i] ? name : std::string("None"); };
  auto graph = compile_function(
      "layer",
      "def f(x: Tensor, w: Tensor, s: Tensor, b: Tensor, bs: Tensor, h: Tensor, c: Tensor, gy: Tensor, gh: Tensor, gc: "
      "Tensor):\n"
      "    y, hn, cn, space = torch.mkldnn_rnn_layer(x, w, s, b, bs, h, c, " +
          text(of.is_reversed) + ", [], 2, " + hidden + settings +
          "False, False, True)\n"
          "    dx, dw, ds, db, dbs, dh, dc = torch.mkldnn_rnn_layer_backward(x, w, s, b, bs, h, c, y, hn, cn, " +
          gradient(0, "gy") + ", " + gradient(1, "gh") + ", " + gradient(2, "gc") + ", " + text(of.is_reversed) + ", 2, " +
          hidden + settings +
          "True, False, [], False, space)\n"
          "    return y, hn, cn, dx, dw, ds, dh, dc" +
          (of.has_biases ? ", db, dbs" : "") + "\n");
  for (size_t i = 0; i < operands.size(); ++i) {
    graph->inputs()[i]->set_facts(facts_of(operands[i]));
  }
  propagate_constants(*graph);
  return graph;
}

c10::IValue results_of(std::unique_ptr<Graph> graph, const std::vector<at::Tensor>& operands) {
  torch::jit::Stack stack(operands.begin(), operands.end());
  const auto plan = lower(std::move(graph));
  EXPECT_TRUE(plan) << plan.refusal().reason;
  run_plan(**plan, stack, AutogradUse::kNone);
  return stack.at(0);
}

bool has_kind(const Graph& graph, const std::string& kind) {
  bool has = false;
  for_each_node(graph.body(), [&](const Node* node) { has = has || node->kind().toQualString() == kind; });
  return has;
}

TEST(DecomposeRecordedLstm, ComputesWhatOneDnnComputes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(12);
  for (const RecordedLayer& of : std::vector<RecordedLayer>{{4, 3, 5, 6, false, true, {true, true, true}},
                                                            {4, 3, 5, 6, true, true, {true, false, false}},
                                                            {1, 1, 2, 3, true, false, {false, true, false}},
                                                            {3, 20, 8, 33, false, false, {true, false, true}},
                                                            {2, 2, 3, 260, true, true, {false, false, true}}}) {
    const std::vector<at::Tensor> operands = operands_of(of);
    auto graph = graph_of(of, operands);
    EXPECT_TRUE(decompose_recorded_lstm(*graph));
    EXPECT_FALSE(has_kind(*graph, "aten::mkldnn_rnn_layer"));
    EXPECT_FALSE(has_kind(*graph, "aten::mkldnn_rnn_layer_backward"));
    const c10::IValue got = results_of(std::move(graph), operands);
    const c10::IValue expected = results_of(graph_of(of, operands), operands);
    for (size_t i = 0; i < expected.toTupleRef().elements().size(); ++i) {
      const at::Tensor own = got.toTupleRef().elements()[i].toTensor();
      const at::Tensor theirs = expected.toTupleRef().elements()[i].toTensor();
      EXPECT_EQ(own.sizes(), theirs.sizes()) << "result " << i;
      EXPECT_TRUE(at::allclose(own, theirs, 1e-4, 1e-4)) << "hidden " << of.hidden << ", result " << i;
    }
  }
}

TEST(DecomposeRecordedLstm, LeavesGradientsOfBiasesThatAreNone) {
  const RecordedLayer of = {2, 2, 3, 4, false, false, {true, true, true}};
  const std::vector<at::Tensor> operands = operands_of(of);
  auto graph = graph_of(of, operands);
  Node* backward = nullptr;
  for_each_node(graph->body(), [&](Node* node) {
    backward = node->kind().toQualString() == std::string("aten::mkldnn_rnn_layer_backward") ? node : backward;
  });
  ASSERT_NE(backward, nullptr);
  graph->add_output(backward->output(3));
  EXPECT_FALSE(decompose_recorded_lstm(*graph));
}

}  // namespace
}  // namespace sconce::testing
