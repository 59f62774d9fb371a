// Recurrent layers by one kernel: the results of LibTorch's layers.
#include "tests/kernels/prepared_function.h"
#include "tests/support/threads.h"

#include "kernels/loops/recurrent_cells.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace sconce {
namespace {

using testing::optional;
using testing::prepared_function;

struct LayerCase {
  std::string kind;
  int64_t steps;
  int64_t rows;
  int64_t features;
  int64_t hidden;
  bool is_bidirectional;
  bool has_biases;
};

struct LayerOperands {
  at::Tensor input;
  at::Tensor h;
  at::Tensor c;
  std::vector<at::Tensor> weights;  // as LibTorch takes them
};

LayerOperands operands_of(const LayerCase& layer) {
  const int64_t gates = layer.kind == "lstm" ? 4 : layer.kind == "gru" ? 3 : 1;
  const int64_t directions = layer.is_bidirectional ? 2 : 1;
  LayerOperands operands = {.input = at::randn({layer.steps, layer.rows, layer.features}),
                            .h = at::randn({directions, layer.rows, layer.hidden}),
                            .c = at::randn({directions, layer.rows, layer.hidden}),
                            .weights = {}};
  for (int64_t direction = 0; direction < directions; ++direction) {
    const double scale = 1 / std::sqrt(static_cast<double>(layer.hidden));
    operands.weights.push_back(at::randn({gates * layer.hidden, layer.features}) * scale);
    operands.weights.push_back(at::randn({gates * layer.hidden, layer.hidden}) * scale);
    for (int bias = 0; layer.has_biases && bias < 2; ++bias) {
      operands.weights.push_back(at::randn({gates * layer.hidden}));
    }
  }
  return operands;
}

// LibTorch's layer, in the dtype of the operands.
std::vector<at::Tensor> results_of_libtorch(const LayerCase& layer, const LayerOperands& operands) {
  const auto& [input, h, c, weights] = operands;
  if (layer.kind == "lstm") {
    const auto [y, last_h, last_c] = at::lstm(input, {h, c}, weights, layer.has_biases, 1, 0.0, /*train=*/false,
                                              layer.is_bidirectional, /*batch_first=*/false);
    return {y, last_h, last_c};
  }
  const auto call = [&](auto function) {
    const auto [y, last_h] = function(input, h, weights, layer.has_biases, 1, 0.0, /*train=*/false, layer.is_bidirectional,
                                      /*batch_first=*/false);
    return std::vector<at::Tensor>{y, last_h};
  };
  return layer.kind == "gru"        ? call([](auto&&... all) { return at::gru(all...); })
         : layer.kind == "rnn_tanh" ? call([](auto&&... all) { return at::rnn_tanh(all...); })
                                    : call([](auto&&... all) { return at::rnn_relu(all...); });
}

// A plan of the layer's operator, and its operands.
std::unique_ptr<Plan> plan_of(const LayerCase& layer) {
  const std::string operands = "x0, w0, b0, x1, w1, b1, h, ";
  return prepared_function(
      "def f(x0: Tensor, w0: Tensor, b0: Optional[Tensor], x1: Optional[Tensor], w1: Optional[Tensor], "
      "b1: Optional[Tensor], h: Tensor, c: Tensor):\n    return ops.sconce." +
      (layer.kind == "lstm" ? "lstm_layer(" + operands + "c)" : "recurrent_layer(" + operands + "'" + layer.kind + "')") +
      "\n");
}

torch::jit::Stack arguments_of(const LayerCase& layer, const LayerOperands& operands) {
  const size_t each = layer.has_biases ? 4 : 2;
  torch::jit::Stack arguments;
  for (size_t direction = 0; direction < 2; ++direction) {
    if (direction == 1 && !layer.is_bidirectional) {
      arguments.insert(arguments.end(), 3, c10::IValue());
      break;
    }
    const at::Tensor* const weights = operands.weights.data() + direction * each;
    const at::Tensor of_input =
        layer.has_biases ? at::linear(operands.input, weights[0], weights[2]) : at::linear(operands.input, weights[0]);
    arguments.insert(arguments.end(), {of_input, weights[1], layer.has_biases ? c10::IValue(weights[3]) : c10::IValue()});
  }
  arguments.insert(arguments.end(), {operands.h, operands.c});
  return arguments;
}

std::vector<at::Tensor> tensors_of(const c10::IValue& results) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& each : results.toTupleRef().elements()) {
    tensors.push_back(each.toTensor());
  }
  return tensors;
}

std::string text_of(const LayerCase& layer) {
  return layer.kind + " of " + std::to_string(layer.steps) + " steps, " + std::to_string(layer.rows) + " rows, hidden " +
         std::to_string(layer.hidden) + (layer.is_bidirectional ? ", both ways" : "") + (layer.has_biases ? ", biases" : "");
}

TEST(RecurrentLayers, AreThoseOfLibTorch) {
  const at::NoGradGuard no_grad;
  at::manual_seed(0);
  size_t number = 0;
  for (const char* kind : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) {
    for (const int64_t hidden : {1, 3, 16, 17, 48, 100}) {
      for (const int64_t rows : {1, 2, 7, 16, 33}) {
        ++number;
        const LayerCase layer = {.kind = kind,
                                 .steps = static_cast<int64_t>(1 + number % 5),
                                 .rows = rows,
                                 .features = static_cast<int64_t>(1 + number % 3),
                                 .hidden = hidden,
                                 .is_bidirectional = number % 2 == 0,
                                 .has_biases = number % 3 != 0};
        const LayerOperands operands = operands_of(layer);
        const auto plan = plan_of(layer);
        const auto expected = results_of_libtorch(layer, operands);
        for (int run = 0; run < 3; ++run) {
          const auto got = tensors_of(testing::run(*plan, arguments_of(layer, operands)));
          ASSERT_EQ(got.size(), expected.size());
          for (size_t i = 0; i < got.size(); ++i) {
            testing::expect_alike(got[i], expected[i], text_of(layer) + ", result " + std::to_string(i));
          }
        }
      }
    }
  }
}

// Many rows, few rows with large weights, and both directions on two threads take different ways.
TEST(RecurrentLayers, HaveTheSameBitsWithAnyNumberOfThreads) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  for (const LayerCase& layer : {LayerCase{"lstm", 6, 40, 4, 128, true, true}, LayerCase{"lstm", 6, 1, 4, 520, false, true},
                                 LayerCase{"gru", 6, 3, 4, 440, false, false}, LayerCase{"gru", 5, 19, 4, 64, true, true}}) {
    const LayerOperands operands = operands_of(layer);
    const auto arguments = arguments_of(layer, operands);
    std::vector<at::Tensor> first;
    for (const int threads : {1, 2, 3, 5}) {
      const testing::Threads guard(threads);
      const auto plan = plan_of(layer);
      testing::run(*plan, arguments);
      const auto got = tensors_of(testing::run(*plan, arguments));
      first = first.empty() ? got : first;
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(at::equal(got[i], first[i])) << text_of(layer) << ", " << threads << " threads, result " << i;
      }
    }
  }
}

TEST(RecurrentLayers, HandLargeNumbersAndNaNOn) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.0F,   -0.0F, 1e-30F, -1e-20F, 1e-4F,   0.3F,     -0.7F,     3.0F,
                                     -20.0F, 50.0F, 90.0F,  -90.0F,  -120.0F, infinity, -infinity, std::nanf("")};
  for (const char* kind : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) {
    for (size_t shift = 0; shift < values.size(); ++shift) {
      LayerCase layer = {kind, 1, 1, 1, 19, false, false};
      LayerOperands operands = operands_of(layer);
      operands.weights[0].zero_();
      operands.weights[1].zero_();
      const auto plan = plan_of(layer);
      auto arguments = arguments_of(layer, operands);
      const at::Tensor of_input = arguments[0].toTensor();
      auto* elements = of_input.data_ptr<float>();
      for (int64_t i = 0; i < of_input.numel(); ++i) {
        elements[i] = values[(static_cast<size_t>(i) * 5 + shift) % values.size()];
      }
      // What LibTorch makes of the same sums, in double precision.
      std::vector<at::Tensor> state = {operands.h[0].to(at::kDouble), operands.c[0].to(at::kDouble)};
      at::Tensor expected;
      for (int64_t step = 0; step < layer.steps; ++step) {
        const auto gates = of_input[step].to(at::kDouble).chunk(layer.kind == "lstm" ? 4 : layer.kind == "gru" ? 3 : 1, 1);
        if (layer.kind == "lstm") {
          state[1] = gates[1].sigmoid() * state[1] + gates[0].sigmoid() * gates[2].tanh();
          state[0] = gates[3].sigmoid() * state[1].tanh();
        } else if (layer.kind == "gru") {
          const at::Tensor fresh = (gates[2] + 0 * gates[0].sigmoid()).tanh();
          state[0] = (state[0] - fresh) * gates[1].sigmoid() + fresh;
        } else {
          state[0] = layer.kind == "rnn_tanh" ? gates[0].tanh() : gates[0].relu();
        }
        expected = state[0];
      }
      testing::run(*plan, arguments);
      const at::Tensor got = tensors_of(testing::run(*plan, arguments))[0][layer.steps - 1];
      const double cancelled = layer.kind == "gru" ? 1e-6 : 1e-30;  // of (h - new) * z + new
      EXPECT_TRUE(at::allclose(got.to(at::kDouble), expected, 2e-6, cancelled, /*equal_nan=*/true))
          << kind << " " << shift << "\n"
          << got << "\n"
          << expected;
    }
  }
}

TEST(RecurrentLayers, HaveEveryKindOfVectors) {
  constexpr int64_t kHidden = 37;
  at::manual_seed(2);
  const at::Tensor input = at::randn({4 * kHidden});
  const at::Tensor of_state = at::randn({4 * kHidden});
  const at::Tensor h = at::randn({kHidden});
  const at::Tensor c = at::randn({kHidden});
  const auto results_with = [&](const RecurrentCells& cells) {
    std::vector<at::Tensor> results;
    for (const RecurrentCells::Compute compute : {cells.lstm, cells.gru, cells.tanh, cells.relu}) {
      const at::Tensor new_c = c.clone();
      const at::Tensor out = at::empty({kHidden});
      compute({.of_input = input.const_data_ptr<float>(),
               .of_state = of_state.const_data_ptr<float>(),
               .h = h.const_data_ptr<float>(),
               .c = new_c.data_ptr<float>(),
               .out = out.data_ptr<float>(),
               .hidden = kHidden});
      results.push_back(at::cat({out, new_c}));
    }
    return at::stack(results);
  };
  const at::Tensor expected = results_with(*recurrent_cells(4));
  for (const int64_t lanes : {8, 16}) {
    if (const RecurrentCells* cells = recurrent_cells(lanes)) {
      EXPECT_TRUE(at::allclose(results_with(*cells), expected, 1e-6, 1e-7)) << lanes;
    }
  }
}

// ---- gradients of an LSTM

struct LstmCase {
  int64_t steps;
  int64_t rows;
  int64_t hidden;
  bool is_reversed;
  std::vector<bool> has_gradient;  // of the results, the last h and the last c
};

// The operands of sconce::lstm_layer_for_gradients but for the bias, then the gradients of its results.
torch::jit::Stack arguments_of(const LstmCase& layer) {
  torch::jit::Stack arguments = {at::randn({layer.steps, layer.rows, 4 * layer.hidden}),
                                 at::randn({4 * layer.hidden, layer.hidden}) / std::sqrt(static_cast<double>(layer.hidden)),
                                 at::randn({layer.rows, layer.hidden}), at::randn({layer.rows, layer.hidden})};
  for (size_t i = 0; i < 3; ++i) {
    arguments.push_back(!layer.has_gradient[i] ? c10::IValue()
                        : i == 0               ? c10::IValue(at::randn({layer.steps, layer.rows, layer.hidden}))
                                               : c10::IValue(at::randn({layer.rows, layer.hidden})));
  }
  return arguments;
}

// Returns the layer's results, and the gradients of the input, the first h and the first c, by LibTorch's autograd in
// float64.
std::vector<at::Tensor> results_of_libtorch(const LstmCase& layer, const torch::jit::Stack& arguments) {
  const auto tensor = [&](size_t i) { return arguments[i].toTensor().to(at::kDouble); };
  const at::Tensor input = tensor(0).requires_grad_();
  const at::Tensor weight = tensor(1);
  const at::Tensor first_h = tensor(2).requires_grad_();
  const at::Tensor first_c = tensor(3).requires_grad_();
  at::Tensor h = first_h;
  at::Tensor c = first_c;
  std::vector<at::Tensor> out(static_cast<size_t>(layer.steps));
  for (int64_t step = 0; step < layer.steps; ++step) {
    const int64_t t = layer.is_reversed ? layer.steps - 1 - step : step;
    const auto gates = (input[t] + at::linear(h, weight)).chunk(4, 1);
    c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
    h = gates[3].sigmoid() * c.tanh();
    out[static_cast<size_t>(t)] = h;
  }
  at::Tensor loss = (h + c).sum() * 0.0;
  std::vector<at::Tensor> results = {at::stack(out), h, c};
  for (size_t i = 0; i < 3; ++i) {
    if (arguments[4 + i].isTensor()) {
      loss = loss + (results[i] * tensor(4 + i)).sum();
    }
  }
  loss.backward();
  results.insert(results.end(), {input.grad(), first_h.grad(), first_c.grad()});
  return results;
}

std::string source_of(const LstmCase& layer) {
  const std::string reverse = layer.is_reversed ? "True" : "False";
  return "def f(x: Tensor, w: Tensor, h: Tensor, c: Tensor, of_y: Optional[Tensor], of_h: Optional[Tensor], "
         "of_c: Optional[Tensor]):\n"
         "    y, hn, cn, kept = ops.sconce.lstm_layer_for_gradients(x, w, None, h, c, " +
         reverse +
         ")\n"
         "    dx, dh, dc = ops.sconce.lstm_layer_backward(kept, w, c, of_y, of_h, of_c, " +
         reverse + ")\n    return y, hn, cn, dx, dh, dc\n";
}

TEST(LstmGradients, AreThoseOfLibTorch) {
  at::manual_seed(7);
  for (const LstmCase& layer : std::vector<LstmCase>{{1, 1, 1, false, {true, true, true}},
                                                     {3, 2, 5, true, {true, false, true}},
                                                     {7, 20, 16, false, {false, true, false}},
                                                     {5, 33, 40, true, {true, true, false}},
                                                     {4, 2, 300, false, {true, false, false}},
                                                     {2, 17, 129, true, {false, false, true}},
                                                     {2, 3, 8, true, {false, false, false}}}) {
    const torch::jit::Stack arguments = arguments_of(layer);
    const std::vector<at::Tensor> expected = results_of_libtorch(layer, arguments);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> on_one_thread;
    for (const int threads : {1, 3}) {
      const testing::Threads guard(threads);
      for (const auto& plan : {prepared_function(source_of(layer)), testing::plain_function(source_of(layer))}) {
        for (int run = 0; run < 3; ++run) {
          const std::vector<at::Tensor> got = tensors_of(testing::run(*plan, arguments));
          for (size_t i = 0; i < got.size(); ++i) {
            EXPECT_EQ(got[i].sizes(), expected[i].sizes());
            EXPECT_TRUE(at::allclose(got[i].to(at::kDouble), expected[i], 1e-4, 1e-5))
                << layer.steps << " steps, " << layer.rows << " rows, hidden " << layer.hidden << ", result " << i
                << ": differs by " << (got[i] - expected[i]).abs().max().item<double>();
          }
        }
      }
      const auto bits = tensors_of(testing::run(*prepared_function(source_of(layer)), arguments));
      on_one_thread = on_one_thread.empty() ? bits : on_one_thread;
      for (size_t i = 0; i < bits.size(); ++i) {
        EXPECT_TRUE(at::equal(bits[i], on_one_thread[i])) << "the bits depend on the number of threads";
      }
    }
  }
}

TEST(LstmGradients, KeepNanAndInfinity) {
  const LstmCase layer = {3, 4, 20, false, {true, true, true}};
  at::manual_seed(8);
  const torch::jit::Stack arguments = arguments_of(layer);
  arguments[0].toTensor()[1][0][3] = std::numeric_limits<float>::quiet_NaN();
  arguments[0].toTensor()[0][1].fill_(200);   // gates that are 1
  arguments[0].toTensor()[0][2].fill_(-200);  // and 0
  arguments[4].toTensor()[2][3][0] = std::numeric_limits<float>::infinity();
  const at::NoGradGuard no_grad;
  const auto expected = tensors_of(testing::run(*testing::plain_function(source_of(layer)), arguments));
  const auto got = tensors_of(testing::run(*prepared_function(source_of(layer)), arguments));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-4, 1e-5, /*equal_nan=*/true)) << "gradient " << i;
  }
}

TEST(LstmGradients, HaveEveryKindOfVectors) {
  at::manual_seed(9);
  constexpr int64_t kHidden = 37;
  const at::Tensor of_input = at::randn({4 * kHidden});
  const at::Tensor of_state = at::randn({4 * kHidden});
  const at::Tensor c = at::randn({kHidden}).requires_grad_();
  const at::Tensor sums = (of_input + of_state).requires_grad_();
  const auto gates = sums.chunk(4);
  const at::Tensor new_c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
  const at::Tensor of_out = at::randn({kHidden});
  const at::Tensor of_next = at::randn({kHidden});
  const at::Tensor of_new_c = at::randn({kHidden});
  at::Tensor(((gates[3].sigmoid() * new_c.tanh()) * (of_out + of_next)).sum() + (new_c * of_new_c).sum()).backward();
  for (const int64_t lanes : {4, 8, 16}) {
    if (const RecurrentCells* cells = recurrent_cells(lanes)) {
      const at::Tensor kept = at::empty({5 * kHidden});
      const at::Tensor got_c = c.detach().clone();
      const at::Tensor h = at::empty({kHidden});
      cells->lstm_kept({.of_input = of_input.const_data_ptr<float>(),
                        .of_state = of_state.const_data_ptr<float>(),
                        .c = got_c.data_ptr<float>(),
                        .out = h.data_ptr<float>(),
                        .kept = kept.data_ptr<float>(),
                        .next = of_input.const_data_ptr<float>(),
                        .hidden = kHidden});
      const at::Tensor computed = at::empty({4 * kHidden});
      const at::Tensor of_c = of_new_c.clone();
      cells->lstm_gradient({.kept = kept.const_data_ptr<float>(),
                            .c = c.const_data_ptr<float>(),
                            .of_out = of_out.const_data_ptr<float>(),
                            .of_next = of_next.const_data_ptr<float>(),
                            .of_c = of_c.data_ptr<float>(),
                            .of_sums = computed.data_ptr<float>(),
                            .hidden = kHidden});
      EXPECT_TRUE(at::allclose(h, gates[3].sigmoid() * new_c.tanh(), 1e-5, 1e-5)) << lanes;
      EXPECT_TRUE(at::allclose(got_c, new_c, 1e-5, 1e-5)) << lanes;
      EXPECT_TRUE(at::allclose(computed, sums.grad(), 1e-4, 1e-5)) << lanes;
      EXPECT_TRUE(at::allclose(of_c, c.grad(), 1e-4, 1e-5)) << lanes;
    }
  }
}

}  // namespace
}  // namespace sconce
