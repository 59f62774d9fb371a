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

}  // namespace
}  // namespace sconce
