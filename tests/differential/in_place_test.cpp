// Functional variants and what rows say about backward, against LibTorch: calls with many kinds of arguments.
#include "tests/differential/observed_call.h"
#include "tests/differential/registry_arguments.h"

#include "tools/sconce/values/deep_copy.h"

#include "ops/op.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <map>
#include <set>

namespace sconce::testing {
namespace {

using Values = std::vector<c10::IValue>;

Values copies_of(const Values& values) {
  Values copies;
  for (const c10::IValue& value : values) {
    copies.push_back(cli::deep_copy(value));
  }
  return copies;
}

bool is_floating(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_floating_point();
}

// The one tensor that the operator gives; nothing when it raises.
std::optional<at::Tensor> call(const c10::FunctionSchema& schema, Values arguments) {
  try {
    torch::jit::findOperatorFor(schema.operator_name())->getOperation()(arguments);
    return arguments.at(0).toTensor();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// The gradients of the sum of the result, by each floating argument; nothing when there are none.
std::vector<at::Tensor> gradients_of(const c10::FunctionSchema& schema, const Values& arguments) {
  Values leaves = copies_of(arguments);
  std::vector<at::Tensor> wanted;
  for (c10::IValue& leaf : leaves) {
    if (is_floating(leaf)) {
      wanted.push_back(leaf.toTensor().detach().requires_grad_());
      leaf = wanted.back();
    }
  }
  if (is_floating(leaves[0])) {
    leaves[0] = leaves[0].toTensor().clone();  // a leaf must not be written
  }
  const auto result = call(schema, leaves);
  if (!result || !result->requires_grad()) {
    return {};
  }
  try {
    result->sum().backward();
  } catch (const std::exception& failure) {
    ADD_FAILURE() << schema << ": " << failure.what();
    return {};
  }
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& leaf : wanted) {
    gradients.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
  }
  return gradients;
}

// Whether the arguments are such that the pass accepts the functional variant.
bool are_taken(VariantMatch fits, const Values& arguments) {
  const at::Tensor self = arguments[0].toTensor();
  if (self.layout() != at::kStrided || !self.is_non_overlapping_and_dense()) {
    return false;
  }
  if (fits == VariantMatch::kAlways || fits == VariantMatch::kWithoutGradient) {
    return true;
  }
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i].isTensor()) {
      const at::Tensor other = arguments[i].toTensor();
      if (!other.defined() || !at::is_expandable_to(other.sizes(), self.sizes()) ||
          (fits == VariantMatch::kPointwise && other.scalar_type() != self.scalar_type())) {
        return false;
      }
    } else if (arguments[i].isComplexDouble()) {
      return false;
    }
  }
  return fits == VariantMatch::kContiguous ? self.is_contiguous() : self.is_floating_point();
}

VariantMatch variant_match(const c10::FunctionSchema& schema) {
  const Op* functional = op_of(schema).functional;
  return functional == nullptr ? VariantMatch::kNever : functional->in_place;
}

struct InPlaceTally {
  std::map<std::string, int> calls;  // by operator
  int gradients = 0;
};

void compare_with_reference(const c10::FunctionSchema& schema, const Values& arguments, InPlaceTally& tally) {
  if (!arguments[0].isTensor() || !arguments[0].toTensor().defined() || !are_taken(variant_match(schema), arguments)) {
    return;
  }
  const c10::FunctionSchema& variant = *op_of(schema).functional->schema;
  const auto written = call(schema, copies_of(arguments));
  const auto given = call(variant, copies_of(arguments));
  ASSERT_EQ(written.has_value(), given.has_value()) << schema << " on " << arguments[0].toTensor();
  if (!written) {
    return;
  }
  ++tally.calls[schema.name()];
  EXPECT_EQ(given->scalar_type(), written->scalar_type()) << schema;
  EXPECT_EQ(given->sizes(), written->sizes()) << schema;
  EXPECT_EQ(given->strides(), written->strides()) << schema;
  EXPECT_TRUE(at::allclose(given->to(at::kDouble), written->to(at::kDouble), 0, 0, /*equal_nan=*/true)) << schema;
  if (!is_floating(arguments[0]) || variant_match(schema) == VariantMatch::kWithoutGradient) {
    return;
  }
  const auto of_written = gradients_of(schema, arguments);
  const auto of_given = gradients_of(variant, arguments);
  ASSERT_EQ(of_written.size(), of_given.size()) << schema;
  for (size_t i = 0; i < of_written.size(); ++i) {
    EXPECT_TRUE(at::allclose(of_given[i], of_written[i], 1e-9, 1e-12, /*equal_nan=*/true)) << schema << ", gradient " << i;
  }
  tally.gradients += of_written.empty() ? 0 : 1;
}

// Numbers where the schema has `None` for its default: `clamp_` wants one at least.
void fill_in_numbers(const c10::FunctionSchema& schema, Values& arguments) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i].isNone() && c10::NumberType::get()->isSubtypeOf(*schema.arguments()[i].type())) {
      arguments[i] = 0.25;
    }
  }
}

// As they are, with integers, with the first transposed.
std::vector<Values> variants_of(const Values& arguments) {
  std::vector<Values> variants = {arguments};
  if (is_floating(arguments[0])) {
    const at::Tensor self = arguments[0].toTensor();
    variants.push_back(arguments);
    variants.back()[0] = (self * 8).to(at::kLong);
    if (self.dim() >= 2 && self.size(0) == self.size(1)) {
      variants.push_back(arguments);
      variants.back()[0] = self.clone(at::MemoryFormat::Contiguous).transpose(0, 1);
    }
  }
  return variants;
}

TEST(FunctionalVariant, GivesWhatTheOperatorInPlaceWrites) {
  InPlaceTally tally;
  std::set<std::string> all;
  for (const auto& op : torch::jit::getAllOperators()) {
    const c10::FunctionSchema& schema = op->schema();
    if (variant_match(schema) == VariantMatch::kNever) {
      continue;
    }
    all.insert(schema.name());
    for (int recipe = 0; recipe < kArgumentRecipes; ++recipe) {
      std::string why;
      at::manual_seed(3);
      auto arguments = make_registry_arguments(schema, recipe, why);
      if (arguments) {
        fill_in_numbers(schema, arguments->values);
        for (const Values& variant : variants_of(arguments->values)) {
          compare_with_reference(schema, variant, tally);
        }
      }
    }
  }
  EXPECT_GE(all.size(), 35U);
  for (const std::string& name : all) {
    EXPECT_GT(tally.calls[name], 0) << name << " was never called with arguments that it takes";
  }
  std::cout << all.size() << " operators, gradients compared in " << tally.gradients << " calls\n";
}

TEST(FunctionalVariant, IsNoneWhereTheOperatorWritesOrDrawsOtherwise) {
  for (const char* name : {"aten::dropout_", "aten::t_", "aten::resize_", "aten::exp_", "aten::append", "aten::add",
                           "aten::__iand__", "aten::set_", "aten::index_add_"}) {
    for (const auto& op : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name))) {
      EXPECT_EQ(variant_match(op->schema()), VariantMatch::kNever) << op->schema();
    }
  }
}

TEST(BackwardIgnoresResult, HoldsWhereAWriteIntoTheResultDoesNotDisturbBackward) {
  std::set<std::string> told;
  std::set<std::string> tried;
  for (const auto& op : torch::jit::getAllOperators()) {
    const c10::FunctionSchema& schema = op->schema();
    if (!op_of(schema).backward_ignores_result || schema.returns().size() != 1 || schema.is_mutable() ||
        schema.returns()[0].type()->kind() != c10::TypeKind::TensorType) {
      continue;
    }
    told.insert(schema.name());
    for (int recipe = 0; recipe < kArgumentRecipes; ++recipe) {
      std::string why;
      at::manual_seed(3);
      const auto arguments = make_registry_arguments(schema, recipe, why);
      if (!arguments) {
        continue;
      }
      Values leaves = copies_of(arguments->values);
      for (c10::IValue& leaf : leaves) {
        if (is_floating(leaf)) {
          leaf = leaf.toTensor().detach().requires_grad_();
        }
      }
      const auto result = call(schema, leaves);
      if (!result || !result->requires_grad() || result->is_leaf() || !result->is_floating_point()) {
        continue;
      }
      {
        const at::NoGradGuard no_grad;
        result->mul_(2);
      }
      EXPECT_NO_THROW(result->sum().backward()) << schema;
      tried.insert(schema.name());
    }
  }
  std::string untried;
  for (const std::string& name : told) {
    untried += tried.contains(name) ? "" : " " + name;
  }
  std::cout << tried.size() << " operators tried; no gradient came of" << untried << "\n";
  EXPECT_GE(tried.size(), 30U);
}

}  // namespace
}  // namespace sconce::testing
