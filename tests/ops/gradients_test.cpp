// The gradients in the rows, and those that are recorded, for all of tests/ops/gradients/*.cases, against LibTorch's
// autograd.
#include "tests/ops/eager_gradients.h"
#include "tests/ops/gradient_cases.h"
#include "tests/support/graphs.h"

#include "load/compile_op_row.h"
#include "ops/rows.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace sconce {
namespace {

using testing::GradientCase;
using testing::Tensors;
using testing::Values;

// The subsets of the positions that are not empty.
std::vector<std::vector<size_t>> subsets_of(const std::vector<size_t>& positions) {
  std::vector<std::vector<size_t>> subsets;
  for (size_t bits = 1; bits < size_t{1} << positions.size(); ++bits) {
    std::vector<size_t> subset;
    for (size_t i = 0; i < positions.size(); ++i) {
      if ((bits >> i & 1U) != 0) {
        subset.push_back(positions[i]);
      }
    }
    subsets.push_back(std::move(subset));
  }
  return subsets;
}

// ---- texts and cases ------------------------------------------------------------------------------------------------

// The overloads that the row's texts serve.
std::vector<const Op*> differentiable_overloads(const OpRow& row) {
  std::vector<const Op*> ops;
  for (const auto& registered : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(std::string(row.name)))) {
    const auto& schema = registered->schema();
    if (find_op_row(row.name, schema.overload_name()) == &row && gradient_of(op_of(schema)) != nullptr) {
      ops.push_back(&op_of(schema));
    }
  }
  return ops;
}

TEST(Gradients, AreOfAtLeast150Operators) {
  std::set<std::string_view> names;
  for_each_row([&](const OpRow& row) {
    if (!row.backward.empty()) {
      EXPECT_FALSE(differentiable_overloads(row).empty()) << row.name;
      names.insert(row.name);
    }
  });
  EXPECT_GE(names.size(), 150U);
}

TEST(Gradients, OfEveryRowHaveACaseThatTheirConditionAccepts) {
  std::set<const OpRow*> tried;
  for (const GradientCase& each : testing::gradient_cases()) {
    EXPECT_NE(testing::rule_of(*each.op, each.arguments(2)), nullptr) << each.text << " has no rule";
    if (testing::is_differentiated(each, each.arguments(2))) {
      tried.insert(find_op_row(each.op->schema->name(), each.op->schema->overload_name()));
    }
  }
  for_each_row([&](const OpRow& row) {
    EXPECT_TRUE((row.backward.empty() && !row.recorded_gradient) || tried.contains(&row))
        << row.name << (row.overloads.empty() ? "" : ".") << (row.overloads.empty() ? "" : row.overloads[0]);
  });
}

// Differentiation takes the tuple apart and removes what computes an unused entry.
TEST(Gradients, AreReturnedByOneTupleForEveryOverload) {
  for_each_row([&](const OpRow& row) {
    for (const Op* op : row.backward.empty() ? std::vector<const Op*>{} : differentiable_overloads(row)) {
      const OpGradient& gradient = *gradient_of(*op);
      for (const Graph* graph : {gradient.forward.get(), gradient.backward.get()}) {
        if (graph != nullptr) {
          const Node* last = graph->outputs().at(0)->node();
          EXPECT_TRUE(last->opcode() == Opcode::kTupleConstruct && last->owning_block() == &graph->body()) << *op->schema;
        }
      }
      EXPECT_LE(gradient.backward->outputs()[0]->node()->inputs().size(), op->schema->arguments().size()) << *op->schema;
    }
  });
}

// ---- first order ----------------------------------------------------------------------------------------------------

// Compares for every subset of arguments that require a gradient. Returns whether eager mode has gradients.
bool expect_eager_gradients(const GradientCase& each, const Values& all, at::ScalarType dtype) {
  bool has_gradients = true;
  for (const std::vector<size_t>& needed : subsets_of(testing::differentiable_positions(each, all))) {
    const Values leaves = testing::copies_of(all, dtype, needed);
    if (!testing::is_differentiated(each, leaves)) {
      continue;
    }
    const Values results = testing::call_operator(*each.op, leaves);
    const Tensors grads = testing::random_like(results);
    const auto theirs = testing::unless_it_raises(
        [&] { return testing::eager_gradients(results, testing::tensors_at(leaves, needed), grads); });
    if (!theirs) {
      has_gradients = false;
      continue;
    }
    const Values plain = testing::copies_of(all, dtype);
    const Tensors ours = testing::run_backward(*each.op, plain, testing::run_forward(*each.op, plain), grads, needed);
    for (size_t i = 0; i < needed.size(); ++i) {
      const at::Tensor& gradient = ours[needed[i]];
      const at::Tensor& expected = (*theirs)[i];
      EXPECT_EQ(gradient.defined(), expected.defined()) << each.text << ", argument " << needed[i];
      if (gradient.defined() && expected.defined()) {
        EXPECT_TRUE(testing::agree(gradient, expected, testing::tolerance_for(*each.op, dtype)))
            << each.text << ", argument " << needed[i] << ", of " << needed.size() << " needed";
      }
    }
  }
  return has_gradients;
}

TEST(Gradients, AgreeWithLibTorchsAutograd) {
  testing::for_every_case([](const GradientCase& each, int64_t n) {
    EXPECT_TRUE(expect_eager_gradients(each, each.arguments(n), at::kDouble)) << each.text;
    EXPECT_TRUE(n != 2 || expect_eager_gradients(each, each.arguments(n), at::kFloat)) << each.text;
  });
}

// tests/ops/first_order/*.cases: LibTorch's second order is of other formulas.
TEST(Gradients, AgreeWhereLibTorchsAreNotDerivatives) {
  const auto cases = testing::read_operator_cases(testing::tests_dir() + "/ops/first_order");
  ASSERT_FALSE(cases.empty());
  for (const GradientCase& each : cases) {
    EXPECT_TRUE(expect_eager_gradients(each, each.arguments(5), at::kDouble)) << each.text;
  }
}

// tests/ops/large/*.cases: texts compute the gradients of large operands by other operators.
TEST(Gradients, AgreeOnLargeOperands) {
  const auto cases = testing::read_operator_cases(testing::tests_dir() + "/ops/large");
  ASSERT_FALSE(cases.empty());
  for (const GradientCase& each : cases) {
    for (const int64_t n : {0, 1, 2}) {
      EXPECT_TRUE(expect_eager_gradients(each, each.arguments(n), at::kDouble)) << each.text;
    }
    EXPECT_TRUE(expect_eager_gradients(each, each.arguments(2), at::kFloat)) << each.text;
  }
}

// Reverses the order in memory of the dimensions of the floating tensors.
Values with_reversed_strides(Values values) {
  for (const size_t position : testing::floating_positions(values)) {
    const at::Tensor tensor = values[position].toTensor();
    std::vector<int64_t> reversed(static_cast<size_t>(tensor.dim()));
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    values[position] = tensor.permute(reversed).contiguous().permute(reversed);
  }
  return values;
}

TEST(Gradients, AgreeOnTensorsThatAreNotContiguous) {
  size_t compared = 0;
  testing::for_every_case(
      [&](const GradientCase& each, int64_t n) {
        const Values arguments = with_reversed_strides(each.arguments(n));
        if (testing::unless_it_raises(
                [&] { return testing::call_operator(*each.op, testing::copies_of(arguments, at::kDouble)); })) {
          compared += expect_eager_gradients(each, arguments, at::kDouble) ? 1 : 0;
        }
      },
      {5});
  EXPECT_GT(compared, 350U);
}

// Writes the number over an element of every floating tensor.
Values with_element(Values values, double number) {
  for (c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_floating_point() &&
        value.toTensor().numel() > 0) {
      at::Tensor tensor = value.toTensor().detach().clone(at::MemoryFormat::Contiguous);
      tensor.view(-1)[tensor.numel() / 2].fill_(number);
      value = tensor;
    }
  }
  return values;
}

// A gradient that is not finite in LibTorch is not finite here, or a model that diverges would look sound.
TEST(Gradients, AreNotFiniteWhereLibTorchsAreNot) {
  // Where an element is NaN, LibTorch's vectors and its scalars give different gradients of the first; of a product without
  // a zero it divides the result by the element.
  static const std::set<std::string> excused = {"aten::hardshrink", "aten::hardsigmoid", "aten::hardswish", "aten::hardtanh",
                                                "aten::relu6",      "aten::softshrink",  "aten::elu",       "aten::selu",
                                                "aten::celu",       "aten::leaky_relu",  "aten::logit",     "aten::prod"};
  size_t compared = 0;
  testing::for_every_case([&](const GradientCase& each, int64_t n) {
    for (const double number : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      const Values all = with_element(each.arguments(n), number);
      const std::vector<size_t> needed = testing::differentiable_positions(each, all);
      const Values leaves = testing::copies_of(all, at::kDouble, needed);
      const auto results = testing::unless_it_raises([&] { return testing::call_operator(*each.op, leaves); });
      if (excused.contains(each.op->schema->name()) || !results || !testing::is_differentiated(each, leaves)) {
        continue;
      }
      const Tensors grads = testing::random_like(*results);
      const auto theirs = testing::unless_it_raises(
          [&] { return testing::eager_gradients(*results, testing::tensors_at(leaves, needed), grads); });
      if (!theirs) {
        continue;
      }
      const Values plain = testing::copies_of(all, at::kDouble);
      const Tensors ours = testing::run_backward(*each.op, plain, testing::run_forward(*each.op, plain), grads, needed);
      for (size_t i = 0; i < needed.size(); ++i) {
        const at::Tensor& gradient = ours[needed[i]];
        if (gradient.defined() && (*theirs)[i].defined()) {
          EXPECT_TRUE(at::equal(at::isfinite(gradient), at::isfinite((*theirs)[i])))
              << each.text << ", argument " << needed[i] << ", elements " << number << "\nours " << gradient
              << "\nLibTorch's " << (*theirs)[i];
          compared += 1;
        }
      }
    }
  });
  EXPECT_GT(compared, 1000U);
}

TEST(Gradients, AgreeOnTensorsWithoutElementsAndOfOne) {
  size_t compared = 0;
  testing::for_every_case(
      [&](const GradientCase& each, int64_t n) {
        const auto arguments = testing::unless_it_raises([&] { return each.arguments(n); });
        if (arguments && testing::unless_it_raises([&] {
              return testing::call_operator(*each.op, testing::copies_of(*arguments, at::kDouble));
            })) {
          compared += expect_eager_gradients(each, *arguments, at::kDouble) ? 1 : 0;
        }
      },
      {0, 1});
  EXPECT_GT(compared, 600U);
}

// Reorders tensors of images so that channels lie side by side.
Values with_channels_last(Values values) {
  for (const size_t position : testing::floating_positions(values)) {
    const at::Tensor tensor = values[position].toTensor();
    const bool is_image = tensor.dim() == 4 || tensor.dim() == 5;
    const auto format = tensor.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
    values[position] = is_image ? tensor.contiguous(format) : tensor;
  }
  return values;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

void expect_bits_of_operator(const GradientCase& each, const Values& arguments) {
  Values theirs = testing::copies_of(arguments, at::kFloat);
  Values ours = testing::copies_of(arguments, at::kFloat);
  const Values their_results = testing::call_operator(*each.op, theirs);
  const Values our_results = testing::run_forward(*each.op, ours).results;
  theirs.insert(theirs.end(), their_results.begin(), their_results.end());
  ours.insert(ours.end(), our_results.begin(), our_results.end());
  ASSERT_EQ(ours.size(), theirs.size()) << each.text;
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(!ours[i].isTensor() || !ours[i].toTensor().defined() || same_bits(ours[i].toTensor(), theirs[i].toTensor()))
        << each.text << ": value " << i;
  }
}

TEST(Gradients, ForwardTextsGiveTheBitsOfTheOperatorAndWriteWhatItWrites) {
  size_t texts = 0;
  testing::for_every_case([&](const GradientCase& each, int64_t n) {
    const Values arguments = each.arguments(n);
    if (!each.op->forward.empty() && testing::is_differentiated(each, arguments)) {
      ++texts;
      expect_bits_of_operator(each, arguments);
      expect_bits_of_operator(each, with_reversed_strides(arguments));
      expect_bits_of_operator(each, with_channels_last(arguments));
    }
  });
  EXPECT_GT(texts, 80U);
}

}  // namespace
}  // namespace sconce
