// Which of LibTorch's operators kernels compute, and why not the others.
#include "tests/support/rule_table.h"

#include "fusion/program/operators.h"
#include "fusion/program/reductions.h"
#include "ops/op.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <map>

namespace sconce::testing {
namespace {

// Returns whether kernels compute the operator: itself, in place or not, or the operator that it is another name of.
bool is_computed(const Op& op) {
  if (op.canonical != nullptr) {
    return is_computed(*op.canonical);
  }
  return has_element_rule(op) || may_write_in_place(op);
}

// LibTorch's operators that `counts` selects, by name: whether kernels compute an overload.
template <typename Counts>
std::map<std::string, bool> computed_by_name(const Counts& counts) {
  std::map<std::string, bool> computed;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (handle && name.name.starts_with("aten::") && counts(*handle)) {
      bool& is = computed[name.name.substr(6)];
      is = is || is_computed(op_of(handle->schema()));
    }
  }
  return computed;
}

bool is_pointwise(const c10::OperatorHandle& op) { return op.hasTag(at::Tag::pointwise); }
bool is_of_a_kind(const c10::OperatorHandle& op) { return is_pointwise(op) || op.hasTag(at::Tag::reduction); }

TEST(KernelRuleTable, ComputesFourFifthsOfPointwiseOperators) {
  const auto computed = computed_by_name(is_pointwise);
  const auto count = std::count_if(computed.begin(), computed.end(), [](const auto& entry) { return entry.second; });
  RecordProperty("pointwise_operators", static_cast<int>(computed.size()));
  RecordProperty("pointwise_operators_with_kernels", static_cast<int>(count));
  EXPECT_GT(computed.size(), 200u);
  EXPECT_GE(static_cast<double>(count), 0.8 * static_cast<double>(computed.size()));
}

// Else the memory of what they read would not be placed, and no kernel would compute them (produces_new_tensor).
TEST(KernelRuleTable, OperatorsWithKernelsAreKnownToHoldNoOperand) {
  size_t count = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (handle && name.name.starts_with("aten::") && has_element_rule(op_of(handle->schema()))) {
      ++count;
      EXPECT_FALSE(op_of(handle->schema()).results_may_hold_operands) << handle->schema();
    }
  }
  EXPECT_GT(count, 200u);
}

// An operator that is left to LibTorch has a reason in the table, and no other has.
TEST(KernelRuleTable, SaysWhyOperatorsAreLeft) {
  std::map<std::string, bool> has_reason;
  for (const UnfusedOperators& row : unfused_operators()) {
    for (const std::string_view name : row.names) {
      has_reason[std::string(name)] = true;
    }
  }
  for (const auto& [name, is] : computed_by_name(is_of_a_kind)) {
    EXPECT_EQ(has_reason.contains(name), !is) << name;
    has_reason.erase(name);
  }
  const auto others = computed_by_name(
      [&](const c10::OperatorHandle& op) { return has_reason.contains(op.operator_name().name.substr(6)); });
  for (const auto& [name, is] : has_reason) {
    EXPECT_TRUE(others.contains(name)) << name << " is no operator of LibTorch";
    EXPECT_FALSE(others.contains(name) && others.at(name)) << name << " is computed";
  }
}

}  // namespace
}  // namespace sconce::testing
