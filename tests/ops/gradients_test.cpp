// The gradients in the rows, for all of tests/ops/gradients/*.cases, against LibTorch's autograd and against finite
// differences.
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
#include <set>

namespace sconce {
namespace {

using testing::GradientCase;
using testing::Values;
using Tensors = std::vector<at::Tensor>;

// Tensors of their own, of the dtype where they are floating; those at `leaves` require a gradient.
Values copies_of(const Values& values, at::ScalarType dtype, const std::vector<size_t>& leaves = {}) {
  Values copies = values;
  const std::vector<size_t> floating = testing::floating_positions(values);
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].isTensor() && copies[i].toTensor().defined()) {
      const bool is_floating = std::ranges::find(floating, i) != floating.end();
      const at::Tensor copy = copies[i].toTensor().detach().clone();
      copies[i] = is_floating ? copy.to(dtype) : copy;
    }
  }
  for (const size_t leaf : leaves) {
    copies[leaf].toTensor().requires_grad_(true);
  }
  return copies;
}

Tensors random_like(const Values& values) {
  Tensors made;
  for (const c10::IValue& value : values) {
    const at::Tensor tensor = value.toTensor();
    made.push_back(tensor.is_floating_point() ? at::rand_like(tensor) : at::zeros(tensor.sizes(), at::kDouble));
  }
  return made;
}

// Returns the gradients of the differentiable results by the leaves; undefined ones where autograd gives none.
Tensors eager_gradients(const Values& results, const Tensors& leaves, const Tensors& grads, bool create_graph = false) {
  Tensors outputs;
  Tensors incoming;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].toTensor().requires_grad()) {
      outputs.push_back(results[i].toTensor());
      incoming.push_back(grads[i]);
    }
  }
  if (outputs.empty()) {
    return Tensors(leaves.size());
  }
  return torch::autograd::grad(outputs, leaves, incoming, /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
}

Tensors tensors_at(const Values& values, const std::vector<size_t>& positions) {
  Tensors tensors;
  for (const size_t position : positions) {
    tensors.push_back(values[position].toTensor());
  }
  return tensors;
}

// The positions of floating arguments that may require a gradient: of others LibTorch says that it has no derivative.
std::vector<size_t> differentiable_positions(const GradientCase& each, const Values& arguments) {
  std::vector<size_t> positions = testing::floating_positions(arguments);
  std::erase_if(positions, [&](size_t position) {
    try {
      testing::call_operator(*each.op, copies_of(arguments, at::kDouble, {position}));
      return false;
    } catch (const std::exception& error) {
      return message_of(error).find("is not differentiable with respect to") != std::string::npos;
    }
  });
  return positions;
}

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

// Whether the row's condition holds for the case.
bool is_differentiated(const GradientCase& each, const Values& arguments) {
  const OpGradient* gradient = gradient_of(*each.op);
  return gradient != nullptr &&
         (gradient->condition == nullptr || testing::run(*gradient->condition, arguments).at(0).toBool());
}

// LibTorch multiplies by 1/6 in float there, also for doubles.
double tolerance_for(const Op& op, at::ScalarType dtype) {
  return dtype == at::kFloat ? 2e-4 : op.name == "aten::hardsigmoid" ? 1e-7 : 1e-10;
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
    EXPECT_NE(gradient_of(*each.op), nullptr) << each.text << " has no text";
    if (is_differentiated(each, each.arguments(2))) {
      tried.insert(find_op_row(each.op->schema->name(), each.op->schema->overload_name()));
    }
  }
  for_each_row([&](const OpRow& row) {
    EXPECT_TRUE(row.backward.empty() || tried.contains(&row))
        << row.name << (row.overloads.empty() ? "" : ".") << (row.overloads.empty() ? "" : row.overloads[0]);
  });
}

// Differentiation takes the tuple apart: what makes an entry that nobody needs goes.
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

void expect_eager_gradients(const GradientCase& each, const Values& all, at::ScalarType dtype) {
  for (const std::vector<size_t>& needed : subsets_of(differentiable_positions(each, all))) {
    const Values leaves = copies_of(all, dtype, needed);
    if (!is_differentiated(each, leaves)) {
      continue;
    }
    const Values results = testing::call_operator(*each.op, leaves);
    const Tensors grads = random_like(results);
    const Tensors theirs = eager_gradients(results, tensors_at(leaves, needed), grads);
    const Values plain = copies_of(all, dtype);
    const Tensors ours = testing::run_backward(*each.op, plain, testing::run_forward(*each.op, plain), grads, needed);
    for (size_t i = 0; i < needed.size(); ++i) {
      const at::Tensor& gradient = ours[needed[i]];
      ASSERT_EQ(gradient.defined(), theirs[i].defined()) << each.text << ", argument " << needed[i];
      if (gradient.defined()) {
        EXPECT_TRUE(testing::agree(gradient, theirs[i], tolerance_for(*each.op, dtype)))
            << each.text << ", argument " << needed[i] << ", of " << needed.size() << " needed";
      }
    }
  }
}

TEST(Gradients, AgreeWithLibTorchsAutograd) {
  testing::for_every_case([](const GradientCase& each, int64_t n) {
    const Values arguments = each.arguments(n);
    expect_eager_gradients(each, arguments, at::kDouble);
    if (n == 2) {
      expect_eager_gradients(each, arguments, at::kFloat);
    }
  });
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

TEST(Gradients, ForwardTextsGiveTheBitsOfTheOperatorAndWriteWhatItWrites) {
  size_t texts = 0;
  testing::for_every_case([&](const GradientCase& each, int64_t n) {
    if (each.op->forward.empty() || !is_differentiated(each, each.arguments(n))) {
      return;
    }
    ++texts;
    Values theirs = copies_of(each.arguments(n), at::kFloat);
    Values ours = copies_of(each.arguments(n), at::kFloat);
    const Values their_results = testing::call_operator(*each.op, theirs);
    const Values our_results = testing::run_forward(*each.op, ours).results;
    theirs.insert(theirs.end(), their_results.begin(), their_results.end());
    ours.insert(ours.end(), our_results.begin(), our_results.end());
    ASSERT_EQ(ours.size(), theirs.size()) << each.text;
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(!ours[i].isTensor() || !ours[i].toTensor().defined() ||
                  same_bits(ours[i].toTensor(), theirs[i].toTensor()))
          << each.text << ": value " << i;
    }
  });
  EXPECT_GT(texts, 0U);
}

// ---- finite differences ---------------------------------------------------------------------------------------------

double weighted_sum(const Values& values, const Tensors& weights) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i].toTensor().is_floating_point() ? (values[i].toTensor() * weights[i]).sum().item<double>() : 0;
  }
  return sum;
}

// Central differences in a random direction; the random points avoid kinks with certainty enough.
TEST(Gradients, AgreeWithFiniteDifferences) {
  testing::for_every_case([](const GradientCase& each, int64_t n) {
    const Values arguments = each.arguments(n);
    if (each.family == "kinks" || !is_differentiated(each, arguments)) {
      return;
    }
    const Values start = copies_of(arguments, at::kDouble);
    const testing::ForwardPass forward = testing::run_forward(*each.op, start);
    const Tensors grads = random_like(forward.results);
    if (forward.results[0].toTensor().scalar_type() == at::kFloat) {
      return;  // a cast; the differences are too small for it
    }
    const std::vector<size_t> needed = testing::floating_positions(arguments);
    const Tensors gradients = testing::run_backward(*each.op, start, forward, grads, needed);
    for (const size_t position : needed) {
      if (!gradients[position].defined()) {
        continue;
      }
      const at::Tensor direction = at::randn_like(arguments[position].toTensor());
      constexpr double kStep = 1e-6;
      const auto value_at = [&](double step) {
        Values moved = copies_of(arguments, at::kDouble);
        moved[position] = moved[position].toTensor() + step * direction;
        return weighted_sum(testing::call_operator(*each.op, moved), grads);
      };
      const double difference = (value_at(kStep) - value_at(-kStep)) / (2 * kStep);
      EXPECT_NEAR((gradients[position] * direction).sum().item<double>(), difference, 2e-5 * (1 + std::abs(difference)))
          << each.text << ", argument " << position;
    }
  });
}

// ---- second order ---------------------------------------------------------------------------------------------------

// The sum of the gradients that depend on something, each with weights of its own; undefined if none does.
at::Tensor sum_of(const Tensors& gradients) {
  at::manual_seed(3);
  at::Tensor sum;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined() && gradient.requires_grad()) {
      const at::Tensor part = (gradient * at::rand(gradient.sizes(), gradient.options())).sum();
      sum = sum.defined() ? sum + part : part;
    }
  }
  return sum;
}

Tensors gradients_or_zeros(const at::Tensor& sum, const Tensors& leaves) {
  Tensors gradients(leaves.size());
  if (sum.defined()) {
    gradients =
        torch::autograd::grad({sum}, leaves, {}, /*retain_graph=*/true, /*create_graph=*/false, /*allow_unused=*/true);
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    gradients[i] = gradients[i].defined() ? gradients[i] : at::zeros_like(leaves[i]);
  }
  return gradients;
}

// Returns eager's derivatives of its gradients, or nothing where LibTorch has none.
std::optional<Tensors> eager_second_order(const GradientCase& each, const Values& arguments,
                                          const std::vector<size_t>& needed, const Tensors& grads) {
  Tensors leaves = tensors_at(arguments, needed);
  const Tensors gradients =
      eager_gradients(testing::call_operator(*each.op, arguments), leaves, grads, /*create_graph=*/true);
  leaves.insert(leaves.end(), grads.begin(), grads.end());
  try {
    return gradients_or_zeros(sum_of(gradients), leaves);
  } catch (const std::exception& error) {
    const std::string_view message = error.what();
    if (message.find("not implemented") == std::string_view::npos &&
        message.find("double backward") == std::string_view::npos) {
      throw;
    }
    return std::nullopt;
  }
}

TEST(Gradients, AgreeWithLibTorchsAutogradInSecondOrder) {
  size_t agreed = 0;
  testing::for_every_case([&](const GradientCase& each, int64_t n) {
    const std::vector<size_t> needed = differentiable_positions(each, each.arguments(n));
    const Values theirs = copies_of(each.arguments(n), at::kDouble, needed);
    if (!is_differentiated(each, theirs)) {
      return;
    }
    const Values ours = copies_of(each.arguments(n), at::kDouble, needed);
    Tensors grads = random_like(testing::call_operator(*each.op, copies_of(each.arguments(n), at::kDouble)));
    std::ranges::for_each(grads, [](at::Tensor& grad) { grad.requires_grad_(true); });
    const auto expected = eager_second_order(each, theirs, needed, grads);
    if (!expected) {
      return;
    }
    Tensors leaves = tensors_at(ours, needed);
    leaves.insert(leaves.end(), grads.begin(), grads.end());
    const Tensors gradients = testing::run_backward(*each.op, ours, testing::run_forward(*each.op, ours), grads, needed);
    const Tensors actual = gradients_or_zeros(sum_of(gradients), leaves);
    for (size_t i = 0; i < leaves.size(); ++i) {
      EXPECT_TRUE(testing::agree(actual[i], (*expected)[i], 100 * tolerance_for(*each.op, at::kDouble)))
          << each.text << ", leaf " << i;
    }
    agreed += 1;
  });
  EXPECT_GT(agreed, 500U) << "LibTorch has no second derivative where it had one";
}

}  // namespace
}  // namespace sconce
