// Walks the op table: every row is true of this LibTorch.
#include "ops/op_table.h"

#include "tests/support/graphs.h"

#include "load/row_text.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <set>
#include <sstream>

namespace sconce {
namespace {

using Values = std::vector<c10::IValue>;

c10::OperatorHandle operator_of(const OpRow& row) {
  const auto name = torch::jit::parseSchema(std::string(row.schema)).operator_name();
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str());
}

bool is_comparison(const OpRow& row) {
  return row.primitive == Primitive::kEqual || row.primitive == Primitive::kLess || row.primitive == Primitive::kGreater;
}

// Random arguments of doubles where every row is smooth: positive, away from kinks, no two equal.
Values arguments_for(const c10::FunctionSchema& schema, double low, double high) {
  Values arguments;
  for (const c10::Argument& argument : schema.arguments()) {
    const bool is_mask = argument.name() == "condition" || argument.name() == "mask";
    if (is_mask) {
      arguments.emplace_back(at::rand({3, 3}, at::kDouble) > 0.5);
    } else if (argument.type()->kind() == c10::TypeKind::TensorType) {
      arguments.emplace_back(at::rand({3, 3}, at::kDouble) * (high - low) + low);
    } else if (argument.default_value()) {
      arguments.push_back(argument.name() == "alpha" || argument.name() == "value" ? c10::IValue(1.75)
                                                                                   : *argument.default_value());
    } else {
      arguments.emplace_back(0.625);
    }
  }
  return arguments;
}

at::Tensor call(const c10::OperatorHandle& op, Values arguments) {
  op.callBoxed(arguments);
  return arguments.at(0).toTensor();
}

// Ranges in which a row is defined: log, sqrt and the like need positive arguments, the others also get negative ones.
std::vector<std::pair<double, double>> ranges_of(const OpRow& row) {
  static const std::set<std::string_view> positive = {"aten::log", "aten::sqrt", "aten::rsqrt"};
  const std::string_view name = row.schema.substr(0, row.schema.find_first_of(".("));
  if (positive.contains(name)) {
    return {{0.1, 4}};
  }
  return {{0.1, 4}, {-4, -0.1}, {-4, 4}};
}

TEST(OpTable, EverySchemaIsThisLibTorchsOwn) {
  for (const OpRow& row : op_table()) {
    std::ostringstream printed;
    printed << operator_of(row).schema();
    EXPECT_EQ(printed.str(), row.schema);
  }
}

TEST(OpTable, HasOneRowPerOperatorWhichIsFound) {
  std::set<std::string> names;
  for (const OpRow& row : op_table()) {
    EXPECT_TRUE(names.insert(c10::toString(operator_of(row).operator_name())).second) << row.schema;
    EXPECT_EQ(find_op_row(operator_of(row).schema()), &row);
  }
  EXPECT_EQ(find_op_row(c10::Dispatcher::singleton().findSchemaOrThrow("aten::sort", "").schema()), nullptr);
}

TEST(OpTable, SaysSomethingInEveryRowAndNothingTwice) {
  for (const OpRow& row : op_table()) {
    EXPECT_TRUE(row.primitive != Primitive::kNone || !row.body.empty() || !row.grads.empty()) << row.schema;
    EXPECT_FALSE(row.primitive != Primitive::kNone && !row.body.empty()) << "a primitive needs no body: " << row.schema;
  }
}

TEST(OpTable, EveryGradIsOfADifferentArgumentOfItsSchema) {
  for (const OpRow& row : op_table()) {
    const auto& formals = operator_of(row).schema().arguments();
    std::set<std::string_view> seen;
    for (const GradText& grad : row.grads) {
      EXPECT_TRUE(seen.insert(grad.argument).second) << row.schema;
      const bool is_tensor = std::any_of(formals.begin(), formals.end(), [&](const c10::Argument& formal) {
        return formal.name() == grad.argument && formal.type()->kind() == c10::TypeKind::TensorType;
      });
      EXPECT_TRUE(is_tensor) << grad.argument << " of " << row.schema;
    }
  }
}

TEST(OpTable, EveryBodyAgreesWithTheOperator) {
  at::manual_seed(1);
  size_t bodies = 0;
  for (const OpRow& row : op_table()) {
    if (row.body.empty()) {
      continue;
    }
    ++bodies;
    const auto graph = compile_body(row);
    const c10::OperatorHandle op = operator_of(row);
    for (const auto& [low, high] : ranges_of(row)) {
      const Values arguments = arguments_for(op.schema(), low, high);
      EXPECT_TRUE(testing::agree(testing::run(*graph, arguments).at(0), call(op, arguments), 1e-12)) << row.schema;
    }
  }
  EXPECT_GT(bodies, 5);
}

// LibTorch's hardsigmoid_backward multiplies by 1/6 in float, also for doubles.
double tolerance_of(const OpRow& row) { return row.schema.starts_with("aten::hardsigmoid") ? 1e-7 : 1e-10; }

// The table's gradient of the argument, for the incoming gradient `grad`.
at::Tensor table_gradient(const OpRow& row, const GradText& text, Values arguments, const at::Tensor& grad) {
  const at::Tensor result = call(operator_of(row), arguments);
  arguments.emplace_back(result);
  arguments.emplace_back(grad);
  return testing::run(*compile_grad(row, text), arguments).at(0).toTensor();
}

template <typename Check>
void for_every_grad(const Check& check) {
  at::manual_seed(2);
  size_t grads = 0;
  for (const OpRow& row : op_table()) {
    const c10::OperatorHandle op = operator_of(row);
    for (const GradText& text : row.grads) {
      for (size_t i = 0; i < op.schema().arguments().size(); ++i) {
        if (op.schema().arguments()[i].name() == text.argument) {
          for (const auto& [low, high] : ranges_of(row)) {
            const Values arguments = arguments_for(op.schema(), low, high);
            check(row, text, op, i, arguments, at::rand({3, 3}, at::kDouble));
          }
          ++grads;
        }
      }
    }
  }
  EXPECT_GT(grads, 30);
}

TEST(OpTable, EveryGradAgreesWithLibTorchsAutograd) {
  for_every_grad([](const OpRow& row, const GradText& text, const c10::OperatorHandle& op, size_t argument, Values arguments,
                    const at::Tensor& grad) {
    const at::Tensor ours = table_gradient(row, text, arguments, grad);
    const at::Tensor leaf = arguments[argument].toTensor().detach().requires_grad_(true);
    arguments[argument] = leaf;
    const at::Tensor theirs = torch::autograd::grad({call(op, arguments)}, {leaf}, {grad}).at(0);
    EXPECT_TRUE(testing::agree(ours, theirs, tolerance_of(row))) << text.argument << " of " << row.schema << "\n"
                                                                 << text.text;
  });
}

// Central differences in the direction of one random tensor; the random points avoid kinks with certainty enough.
TEST(OpTable, EveryGradAgreesWithFiniteDifferences) {
  for_every_grad([](const OpRow& row, const GradText& text, const c10::OperatorHandle& op, size_t argument, Values arguments,
                    const at::Tensor& grad) {
    const double slope = (table_gradient(row, text, arguments, grad) * at::ones({3, 3}, at::kDouble)).sum().item<double>();
    const at::Tensor point = arguments[argument].toTensor();
    constexpr double kStep = 1e-6;
    const auto value_at = [&](double step) {
      arguments[argument] = point + step;
      return (call(op, arguments) * grad).sum().item<double>();
    };
    const double difference = (value_at(kStep) - value_at(-kStep)) / (2 * kStep);
    if (std::string_view(text.argument) == "self" && row.schema.starts_with("aten::t(")) {
      return;  // the direction is transposed with it; autograd's test covers it
    }
    EXPECT_NEAR(slope, difference, 1e-4 * (1 + std::abs(difference))) << text.argument << " of " << row.schema;
  });
}

// Where two branches of a formula meet, LibTorch's choice counts, too.
TEST(OpTable, GradsAgreeWithAutogradAtKinksAndTies) {
  for (const OpRow& row : op_table()) {
    const c10::OperatorHandle op = operator_of(row);
    for (const GradText& text : row.grads) {
      for (size_t i = 0; i < op.schema().arguments().size(); ++i) {
        if (op.schema().arguments()[i].name() != text.argument || row.schema.starts_with("aten::mm")) {
          continue;
        }
        Values arguments = arguments_for(op.schema(), 1, 2);
        const at::Tensor kinks = at::tensor({-3.0, 0.0, 3.0, 6.0}, at::kDouble).reshape({2, 2});
        for (c10::IValue& argument : arguments) {
          if (argument.isTensor()) {
            argument = argument.toTensor().scalar_type() == at::kBool ? kinks > 0 : kinks.clone();
          }
        }
        const at::Tensor grad = at::rand({2, 2}, at::kDouble);
        const at::Tensor ours = table_gradient(row, text, arguments, grad);
        const at::Tensor leaf = arguments[i].toTensor().detach().requires_grad_(true);
        arguments[i] = leaf;
        const at::Tensor theirs = torch::autograd::grad({call(op, arguments)}, {leaf}, {grad}).at(0);
        EXPECT_TRUE(testing::agree(ours, theirs, tolerance_of(row))) << text.argument << " of " << row.schema;
      }
    }
  }
}

TEST(OpTable, ComparisonsHaveNoGradient) {
  size_t comparisons = 0;
  for (const OpRow& row : op_table()) {
    if (is_comparison(row)) {
      ++comparisons;
      EXPECT_TRUE(row.grads.empty()) << row.schema;
    }
  }
  EXPECT_EQ(comparisons, 3);
}

}  // namespace
}  // namespace sconce
