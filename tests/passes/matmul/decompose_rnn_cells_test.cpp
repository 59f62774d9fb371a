#include "passes/matmul/decompose_rnn_cells.h"

#include "load/compile_op_row.h"
#include "lower/lower.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sconce {
namespace {

std::unique_ptr<Graph> cell_graph(const std::string& op, bool has_biases) {
  const std::string hx = op == "lstm_cell" ? "List[Tensor]" : "Tensor";
  return compile_function("a cell", "def f(x: Tensor, hx: " + hx + ", wi: Tensor, wh: Tensor, bi: Tensor, bh: Tensor):\n" +
                                        "    return torch." + op + "(x, hx, wi, wh" +
                                        (has_biases ? ", bi, bh" : ", None, None") + ")\n");
}

torch::jit::Stack cell_arguments(const std::string& op, int64_t batch, int64_t batch_of_state) {
  constexpr int64_t kInput = 3;
  constexpr int64_t kHidden = 5;
  const int64_t gates = op == "lstm_cell" ? 4 : op == "gru_cell" ? 3 : 1;
  const at::Tensor h = at::randn({batch_of_state, kHidden});
  const c10::IValue hx = op == "lstm_cell" ? c10::IValue(c10::List<at::Tensor>({h, at::randn_like(h)})) : c10::IValue(h);
  return {at::randn({batch, kInput}),           hx,
          at::randn({gates * kHidden, kInput}), at::randn({gates * kHidden, kHidden}),
          at::randn({gates * kHidden}),         at::randn({gates * kHidden})};
}

std::vector<at::Tensor> results_of(std::unique_ptr<Graph> graph, torch::jit::Stack stack) {
  const auto plan = lower(std::move(graph));
  EXPECT_TRUE(plan) << plan.refusal().reason;
  run_plan(**plan, stack, AutogradUse::kNone);
  std::vector<at::Tensor> tensors;
  if (stack[0].isTensor()) {
    tensors.push_back(stack[0].toTensor());
  } else {
    for (const c10::IValue& element : stack[0].toTupleRef().elements()) {
      tensors.push_back(element.toTensor());
    }
  }
  return tensors;
}

class RnnCells : public ::testing::TestWithParam<const char*> {};

TEST_P(RnnCells, ComputeWhatLibTorchComputes) {
  at::manual_seed(1);
  for (const bool has_biases : {true, false}) {
    auto decomposed = cell_graph(GetParam(), has_biases);
    ASSERT_TRUE(decompose_rnn_cells(*decomposed));
    EXPECT_FALSE(decompose_rnn_cells(*decomposed)) << "what is left to the operator stays";
    eliminate_dead_nodes(*decomposed);
    const torch::jit::Stack arguments = cell_arguments(GetParam(), 4, 4);
    const auto expected = results_of(cell_graph(GetParam(), has_biases), arguments);
    const auto got = results_of(std::move(decomposed), arguments);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-5, 1e-6)) << GetParam() << ", result " << i;
    }
  }
}

TEST_P(RnnCells, RaiseWhereBatchesDiffer) {
  auto decomposed = cell_graph(GetParam(), true);
  ASSERT_TRUE(decompose_rnn_cells(*decomposed));
  EXPECT_THROW(results_of(std::move(decomposed), cell_arguments(GetParam(), 4, 1)), std::exception);
}

// A branch of the model's own is no leftover of the pass.
TEST_P(RnnCells, OfABranchOfTheModelAreWrittenOut) {
  const std::string op = GetParam();
  const bool is_lstm = op == "lstm_cell";
  const std::string h = is_lstm ? "hx[0]" : "hx";
  auto graph = compile_function("a cell", "def f(x: Tensor, hx: " + std::string(is_lstm ? "List[Tensor]" : "Tensor") +
                                              ", wi: Tensor, wh: Tensor, bi: Tensor, bh: Tensor):\n"
                                              "    if x.dim() == 1:\n        y = " +
                                              h + "\n    else:\n        y = torch." + op + "(x, hx, wi, wh, bi, bh)" +
                                              (is_lstm ? "[0]" : "") + "\n    return y\n");
  EXPECT_TRUE(decompose_rnn_cells(*graph));
  EXPECT_FALSE(decompose_rnn_cells(*graph));
}

INSTANTIATE_TEST_SUITE_P(Passes, RnnCells, ::testing::Values("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"));

}  // namespace
}  // namespace sconce
