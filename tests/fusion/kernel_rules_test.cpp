// Every operator that kernels compute, beside the operator itself.
#include "tests/fusion/rule_check.h"
#include "tests/support/part.h"

#include "fusion/program/kernel_width.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <unordered_set>

namespace sconce::testing {
namespace {

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kBool};
class KernelRules : public ::testing::TestWithParam<size_t> {
 protected:
  const at::NoGradGuard no_grad_;
};

class KernelTypes : public ::testing::Test {
 protected:
  static size_t GetParam() { return kernel_widths().at(0); }
  const at::NoGradGuard no_grad_;
};

std::string plain_name_of(const c10::OperatorHandle& op) { return op.schema().name().substr(std::string("aten::").size()); }

TEST(KernelRuleTable, HasARowForEveryOperatorWithARule) {
  std::set<const RuleRow*> used;
  for (const c10::OperatorHandle& op : operators_with_rules()) {
    const RuleRow* row = find_rule_row(op.operator_name());
    EXPECT_NE(row, nullptr) << toString(op.operator_name());
    used.insert(row);
  }
  for (const RuleRow& row : rule_rows()) {
    EXPECT_TRUE(used.contains(&row)) << row.name << " has no rule";
  }
}

// `exact` leaves out programs that may differ. All others must be exact, on every machine: by the operations that LibTorch's
// own kernels execute, not by luck.
TEST(KernelRuleTable, HasNoDistanceForProgramsThatDoNotDiffer) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, std::string> kReasons = {
      {"sqrt", "the instruction computes bfloat16 in LibTorch, too"},
      {"rsqrt", "the instruction computes float32 and float64 in LibTorch, too"},
      {"pow", "products, quotients and the instruction compute some exponents in LibTorch, too"},
      {"float_power", "it is pow of float64"},
      {"div", "a quotient that is not rounded to an integer"},
  };
  std::set<std::string> used;
  for (const c10::OperatorHandle& op : operators_with_rules()) {
    const RuleRow& row = *find_rule_row(op.operator_name());
    for (size_t variant = 0; auto call = variant_of(op, variant); ++variant) {
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
        const auto given = arguments_for(*call, {dtype}, variant, as_it_is, 1);
        const Distance distance = distance_for(row, dtype);
        const bool is_exact = distance.ulps == 0 && !distance.any_nan && !distance.any_overflow && !distance.any_zero &&
                              !distance.any_of_nan && !distance.any_infinity;
        if (is_exact || may_differ(*call, given).value_or(true)) {
          continue;
        }
        const std::string name = plain_name_of(op);
        EXPECT_TRUE(kReasons.contains(name)) << call->text() << " of " << dtype;
        EXPECT_TRUE((name != "sqrt" || dtype == at::kBFloat16) && (name != "rsqrt" || dtype != at::kBFloat16));
        used.insert(name);
      }
    }
  }
  EXPECT_EQ(used.size(), kReasons.size()) << "a reason that no program needs";
}

// The functions that kernels compute in line, beside float64: every 1009th float32, of either sign.
TEST(InlineFunctions, AreWithinTwoUlps) {
  const at::NoGradGuard no_grad;
  constexpr int64_t kFloats = 0x7F800000 / 1009;
  const at::Tensor bits = (at::arange(kFloats, at::kLong) * 1009).to(at::kInt);
  const at::Tensor positive = bits.view(at::kFloat);
  const at::Tensor x = at::cat({positive, -positive});
  for (const char* name : {"aten::exp", "aten::tanh", "aten::erf", "aten::sigmoid"}) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    const auto call = variant_of(op, 0);
    for (const size_t lanes : kernel_widths()) {
      KernelCall kernel(*call, lanes);
      const Outcome got = kernel.run({x});
      ASSERT_TRUE(kernel.ran_kernel());
      const at::Tensor expected = run_eager(*call, {x.to(at::kDouble)}).result->to(at::kFloat);
      int64_t where = -1;
      EXPECT_LE(distance_between(*got.result, expected, x, Distance{.ulps = 2}, &where), 2)
          << name << " of " << (where < 0 ? 0.0F : x[where].item<float>());
    }
  }
}

// Returns whether the operator is a special function of one operand, or a polynomial: each kind shares a rule.
bool shares_a_rule(const c10::OperatorHandle& op) {
  static const std::set<std::string> kOfOneOperand = {"special_airy_ai", "special_erfcx",    "special_i0e",  "special_i1",
                                                      "special_i1e",     "special_log_ndtr", "special_ndtri"};
  const std::string name = plain_name_of(op);
  return kOfOneOperand.contains(name) || name.find("bessel_") != std::string::npos ||
         name.find("polynomial_") != std::string::npos;
}

// Returns whether kernels of such vectors leave the operator to LibTorch: its function of one element is compiled for AVX2.
bool is_left_out(const c10::OperatorHandle& op, size_t lanes) {
  static const std::set<std::string> kOfScalars = {"acosh",  "asinh",   "digamma", "erfinv",    "gcd",       "i0",
                                                   "igamma", "igammac", "lcm",     "nextafter", "polygamma", "special_zeta"};
  return lanes == kGenericLanes && (shares_a_rule(op) || kOfScalars.contains(plain_name_of(op)));
}

// Each operator on operands of one dtype. Kernels must run exactly for the dtypes that the table lists.
TEST_P(KernelRules, AgreeOnOperandsOfOneDtype) {
  std::map<const RuleRow*, std::set<at::ScalarType>> computed;
  std::unordered_set<c10::OperatorName> ran;
  const std::vector<c10::OperatorHandle> operators = operators_in_part();
  for (const c10::OperatorHandle& op : operators) {
    for (size_t variant = 0; auto call = variant_of(op, variant); ++variant) {
      for (const at::ScalarType dtype : kDtypes) {
        RuleCheck check(*call, GetParam());
        const auto agrees_at = [&](int64_t count) {
          return check.compare(arguments_for(*call, {dtype}, variant, as_it_is, count));
        };
        if (agrees_at(1000)) {
          computed[find_rule_row(op.operator_name())].insert(dtype);
          ran.insert(op.operator_name());
          for (const int64_t count : variant == 0 ? std::vector<int64_t>{0, 1, 7, 16, 33} : std::vector<int64_t>{7}) {
            EXPECT_TRUE(agrees_at(count)) << toString(op.operator_name()) << " of " << count << " elements";
          }
          if (variant == 0 && dtype == at::kFloat) {
            EXPECT_TRUE(agrees_at(300'000));
          }
        }
      }
    }
  }
  std::set<const RuleRow*> rows;
  for (const c10::OperatorHandle& op : operators) {
    const bool has_kernel = !is_left_out(op, GetParam());
    EXPECT_EQ(ran.contains(op.operator_name()), has_kernel) << toString(op.operator_name());
    if (has_kernel) {
      rows.insert(find_rule_row(op.operator_name()));
    }
  }
  for (const RuleRow* row : rows) {
    for (const at::ScalarType dtype : kDtypes) {
      EXPECT_EQ(computed[row].contains(dtype), contains(row->dtypes, dtype)) << row->name << " of " << dtype;
    }
  }
}

// Returns whether another operator, i1 or chebyshev_polynomial_t, stands for this one where programs do not depend on the
// function.
bool is_one_of_many(const c10::OperatorHandle& op) {
  const std::string name = plain_name_of(op);
  return shares_a_rule(op) && name != "special_i1" && name != "special_chebyshev_polynomial_t";
}

// Numbers that each call gives.
TEST_F(KernelTypes, AgreeOnNumbersOfEachCall) {
  for (const c10::OperatorHandle& op : operators_in_part()) {
    if (is_one_of_many(op)) {
      continue;
    }
    for (size_t variant = 0; variant < 8; ++variant) {
      if (const auto call = variant_of(op, variant, /*gives_numbers=*/true)) {
        for (const at::ScalarType dtype : kDtypes) {
          RuleCheck check(*call, GetParam());
          check.compare(arguments_for(*call, {dtype}, variant, as_it_is, 1000));
          check.compare(arguments_for(*call, {dtype}, variant + 1, as_it_is, 7));
        }
      }
    }
  }
}

// Type promotion: operands of several dtypes, some without dimensions.
TEST_F(KernelTypes, AgreeOnOperandsOfSeveralDtypes) {
  constexpr at::ScalarType kMixed[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kInt, at::kBool};
  size_t computed = 0;
  for (const c10::OperatorHandle& op : operators_in_part()) {
    if (is_one_of_many(op)) {
      continue;
    }
    const auto call = variant_of(op, 0);
    const auto& declared = op.schema().arguments();
    const auto tensors = std::count_if(declared.begin(), declared.end(), is_tensor_argument);
    for (const at::ScalarType first : kMixed) {
      for (const at::ScalarType second : kMixed) {
        for (const size_t zero_dim : {0, 1, 2, 3}) {  // a bit by operand
          if (tensors == 1 ? zero_dim != 1 || first != second : zero_dim == 0 && first == second) {
            continue;
          }
          const auto shaped = [&](at::Tensor values, size_t i) {
            const bool is_zero_dim = i < 2 && (zero_dim >> i & 1) != 0;
            return is_zero_dim ? at::full({}, 0.7182818 + static_cast<double>(i)).to(values.scalar_type()) : values;
          };
          const auto given = arguments_for(*call, {first, second}, 0, shaped, 1000);
          RuleCheck check(*call, GetParam());
          computed += check.compare(given) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(computed * part_of_run().count, 400u);
}

// A result that takes its dtype from the default is left to LibTorch, whatever the default was when the kernel was made.
TEST_F(KernelTypes, AgreeUnderAnotherDefaultDtype) {
  const auto before = c10::get_default_dtype();
  for (const c10::OperatorHandle& op : operators_in_part()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kLong, at::kBool}) {
      for (size_t variant = 0; variant < 2; ++variant) {
        if (const auto call = variant_of(op, variant)) {
          RuleCheck check(*call, GetParam());
          for (const at::ScalarType now : {at::kFloat, at::kDouble}) {
            c10::set_default_dtype(c10::scalarTypeToTypeMeta(now));
            check.compare(arguments_for(*call, {dtype}, variant, as_it_is, 33));
          }
        }
      }
    }
  }
  c10::set_default_dtype(before);
}

INSTANTIATE_TEST_SUITE_P(Lanes, KernelRules, ::testing::ValuesIn(kernel_widths()),
                         [](const auto& lanes) { return std::to_string(lanes.param); });

}  // namespace
}  // namespace sconce::testing
