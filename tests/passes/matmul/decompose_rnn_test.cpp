// decompose_rnn: the results of LibTorch's recurrent layers.
#include "passes/matmul/decompose_rnn.h"

#include "ir/text/print.h"
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

constexpr int64_t kInput = 5;
constexpr int64_t kHidden = 4;
constexpr int64_t kBatch = 3;

struct Form {
  std::string op;
  bool has_biases;
  int64_t layers;
  bool is_bidirectional;
  bool batch_comes_first;

  bool is_lstm() const { return op == "lstm"; }
  int64_t gates() const { return is_lstm() ? 4 : op == "gru" ? 3 : 1; }
  int64_t directions() const { return is_bidirectional ? 2 : 1; }
};

std::string text_of(bool value) { return value ? "True" : "False"; }

// A function of the input, the state and the weights.
std::unique_ptr<Graph> graph_of(const Form& form, const std::string& dropout = "0.0, False") {
  const std::string source = "def layers(x: Tensor, hx: " + std::string(form.is_lstm() ? "List[Tensor]" : "Tensor") +
                             ", params: List[Tensor]):\n    return torch." + form.op + "(x, hx, params, " +
                             text_of(form.has_biases) + ", " + std::to_string(form.layers) + ", " + dropout + ", " +
                             text_of(form.is_bidirectional) + ", " + text_of(form.batch_comes_first) + ")\n";
  return compile_function("a recurrent layer", source);
}

torch::jit::Stack arguments_of(const Form& form, int64_t steps, int64_t projection = 0) {
  const auto state = [&](int64_t size) { return at::randn({form.layers * form.directions(), kBatch, size}); };
  c10::List<at::Tensor> params;
  for (int64_t layer = 0; layer < form.layers; ++layer) {
    for (int64_t direction = 0; direction < form.directions(); ++direction) {
      const int64_t hidden = projection != 0 ? projection : kHidden;
      const int64_t input = layer == 0 ? kInput : hidden * form.directions();
      params.push_back(at::randn({form.gates() * kHidden, input}));
      params.push_back(at::randn({form.gates() * kHidden, hidden}));
      if (form.has_biases) {
        params.push_back(at::randn({form.gates() * kHidden}));
        params.push_back(at::randn({form.gates() * kHidden}));
      }
      if (projection != 0) {
        params.push_back(at::randn({projection, kHidden}));
      }
    }
  }
  const at::Tensor x = form.batch_comes_first ? at::randn({kBatch, steps, kInput}) : at::randn({steps, kBatch, kInput});
  if (form.is_lstm()) {
    const int64_t hidden = projection != 0 ? projection : kHidden;
    return {x, c10::List<at::Tensor>({state(hidden), state(kHidden)}), params};
  }
  return {x, state(kHidden), params};
}

torch::jit::Stack run(std::unique_ptr<Graph> graph, torch::jit::Stack stack) {
  const auto plan = lower(std::move(graph));
  EXPECT_TRUE(plan) << plan.refusal().reason;
  run_plan(**plan, stack, AutogradUse::kNone);
  return stack;
}

void expect_same_results(const Form& form, const torch::jit::Stack& arguments) {
  auto decomposed = graph_of(form);
  ASSERT_TRUE(decompose_rnn(*decomposed));
  eliminate_dead_nodes(*decomposed);
  const auto expected = run(graph_of(form), arguments)[0].toTupleRef().elements().vec();
  const auto got = run(std::move(decomposed), arguments)[0].toTupleRef().elements().vec();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].toTensor().sizes(), expected[i].toTensor().sizes());
    EXPECT_TRUE(at::allclose(got[i].toTensor(), expected[i].toTensor(), 1e-5, 1e-6)) << form.op << ", result " << i;
  }
}

TEST(DecomposeRnn, ComputesWhatLibTorchComputes) {
  at::manual_seed(1);
  for (const char* op : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) {
    for (const bool has_biases : {true, false}) {
      for (const int64_t layers : {1, 2}) {
        for (const bool is_bidirectional : {false, true}) {
          for (const bool batch_comes_first : {false, true}) {
            const Form form{op, has_biases, layers, is_bidirectional, batch_comes_first};
            expect_same_results(form, arguments_of(form, /*steps=*/3));
            expect_same_results(form, arguments_of(form, /*steps=*/1));
          }
        }
      }
    }
  }
}

TEST(DecomposeRnn, LeavesProjectionsToTheOperator) {
  at::manual_seed(2);
  const Form form{"lstm", true, 1, false, false};
  expect_same_results(form, arguments_of(form, /*steps=*/3, /*projection=*/2));
}

TEST(DecomposeRnn, LeavesEmptySequencesToTheOperator) {
  const Form form{"gru", true, 1, false, false};
  auto decomposed = graph_of(form);
  ASSERT_TRUE(decompose_rnn(*decomposed));
  EXPECT_THROW(run(std::move(decomposed), arguments_of(form, /*steps=*/0)), std::exception);
  EXPECT_THROW(run(graph_of(form), arguments_of(form, /*steps=*/0)), std::exception);
}

TEST(DecomposeRnn, LeavesActiveDropoutAlone) {
  const Form form{"gru", true, 2, false, false};
  EXPECT_FALSE(decompose_rnn(*graph_of(form, "0.5, True")));
  EXPECT_TRUE(decompose_rnn(*graph_of(form, "0.5, False")));
}

TEST(DecomposeRnn, LeavesToTheOperatorWhatItTrainsFaster) {
  EXPECT_FALSE(decompose_rnn(*graph_of({"lstm", true, 1, false, false}), /*records_gradients=*/true));
  EXPECT_TRUE(decompose_rnn(*graph_of({"gru", true, 1, false, false}), /*records_gradients=*/true));
}

TEST(DecomposeRnn, LeavesLayersOfAGpuToCudnn) {
  auto graph = graph_of({"gru", true, 1, false, false});
  TensorFacts on_gpu;
  on_gpu.device = c10::Device(c10::kCUDA, 0);
  graph->inputs()[0]->set_facts(on_gpu);
  EXPECT_FALSE(decompose_rnn(*graph));
}

}  // namespace
}  // namespace sconce
