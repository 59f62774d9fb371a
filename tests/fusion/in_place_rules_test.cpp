// Every operator in place that kernels compute, beside the operator itself.
#include "tests/fusion/rule_check.h"
#include "tests/support/part.h"

#include "fusion/program/kernel_width.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <set>

namespace sconce::testing {
namespace {

constexpr at::ScalarType kTargetDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kLong,
                                            at::kInt,   at::kByte,   at::kBool};

class InPlaceRules : public ::testing::Test {
 protected:
  const at::NoGradGuard no_grad_;
  const size_t lanes_ = kernel_widths().at(0);
};

TEST_F(InPlaceRules, AgreeOnOperandsOfOneDtype) {
  std::set<std::string> left;
  for (const c10::OperatorHandle& op : in_part(operators_in_place())) {
    bool ran = false;
    for (size_t variant = 0; variant < 3; ++variant) {
      const auto call = variant_of(op, variant);
      for (const at::ScalarType dtype : call ? std::span(kTargetDtypes) : std::span<const at::ScalarType>()) {
        RuleCheck check(*call, lanes_);
        ran = check.compare(arguments_for(*call, {dtype}, variant, as_it_is, 33)) || ran;
        check.compare(arguments_for(*call, {dtype}, variant, as_it_is, 7));
      }
    }
    if (!ran) {
      left.insert(toString(op.operator_name()));
    }
  }
  EXPECT_GT(operators_in_place().size(), 100u);
  EXPECT_TRUE(left.empty() || lanes_ == kGenericLanes) << *left.begin() << " never ran in a kernel";
}

// What LibTorch does not convert to the dtype of the target, it rejects.
TEST_F(InPlaceRules, AgreeOnOperandsOfSeveralDtypes) {
  size_t ran = 0;
  for (const c10::OperatorHandle& op : in_part(operators_in_place())) {
    const auto call = variant_of(op, 0);
    const auto& declared = op.schema().arguments();
    if (std::count_if(declared.begin(), declared.end(), is_tensor_argument) == 1) {
      continue;
    }
    for (const at::ScalarType first : {at::kFloat, at::kBFloat16, at::kInt, at::kBool}) {
      for (const at::ScalarType second : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kBool}) {
        for (const bool is_zero_dim : {false, true}) {
          const auto shaped = [&](at::Tensor values, size_t i) {
            return is_zero_dim && i > 0 ? at::full({}, 1.7182818).to(values.scalar_type()) : values;
          };
          RuleCheck check(*call, lanes_);
          ran += check.compare(arguments_for(*call, {first, second}, 0, shaped, 33)) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(ran * part_of_run().count, 200u);
}

// Numbers that each call gives.
TEST_F(InPlaceRules, AgreeOnNumbersOfEachCall) {
  for (const c10::OperatorHandle& op : in_part(operators_in_place())) {
    for (size_t variant = 0; variant < 4; ++variant) {
      if (const auto call = variant_of(op, variant, /*gives_numbers=*/true)) {
        for (const at::ScalarType dtype : kTargetDtypes) {
          RuleCheck check(*call, lanes_);
          check.compare(arguments_for(*call, {dtype}, variant, as_it_is, 33));
          check.compare(arguments_for(*call, {dtype}, variant + 1, as_it_is, 7));
        }
      }
    }
  }
}

// The target keeps its sizes: LibTorch rejects operands that are larger.
TEST_F(InPlaceRules, AgreeOnOperandsOfSeveralSizes) {
  constexpr std::pair<std::array<int64_t, 2>, std::array<int64_t, 2>> kSizes[] = {
      {{3, 5}, {1, 5}}, {{3, 5}, {3, 1}}, {{1, 5}, {3, 5}}, {{3, 1}, {3, 5}},
      {{3, 5}, {3, 4}}, {{1, 1}, {1, 5}}, {{0, 5}, {1, 5}},
  };
  size_t ran = 0;
  for (const c10::OperatorHandle& op : in_part(operators_in_place())) {
    const auto call = variant_of(op, 0);
    RuleCheck check(*call, lanes_);
    for (const auto& [target, other] : kSizes) {
      const auto shaped = [&](const at::Tensor& values, size_t i) {
        const auto& sizes = i == 0 ? target : other;
        return values.slice(0, 0, sizes[0] * sizes[1]).reshape(sizes);
      };
      ran += check.compare(arguments_for(*call, {at::kFloat}, 0, shaped, 15)) ? 1 : 0;
      ran += check.compare(arguments_for(*call, {at::kLong}, 0, shaped, 15)) ? 1 : 0;
    }
  }
  EXPECT_GT(ran * part_of_run().count, 300u);
}

}  // namespace
}  // namespace sconce::testing
