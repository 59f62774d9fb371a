// Type promotion within groups: the operands of an operator are computed in the group, by reductions, through views, or with
// numbers. A dtype counts less if its tensor has no dimensions, however the tensor was computed.
#include "tests/fusion/kernel_call.h"
#include "tests/support/graphs.h"

#include "lower/lower.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>

namespace sconce::testing {
namespace {

constexpr at::ScalarType kMixedDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kInt, at::kBool};

// How the group makes an operand of its input of `rank` dimensions. `$` is the operand.
struct OperandForm {
  const char* name;
  int64_t rank;
  const char* text;
};
constexpr OperandForm kForms[] = {
    {"vector", 1, "%$ : Tensor = aten::mul(%in_$, %in_$)"},
    {"zero-dim", 0, "%$ : Tensor = aten::mul(%in_$, %in_$)"},
    {"input", 1, "%$ : Tensor = aten::alias(%in_$)"},
    {"zero-dim input", 0, "%$ : Tensor = aten::alias(%in_$)"},
    {"sum", 1, "%s_$ : Tensor = aten::mul(%in_$, %in_$)\n  %$ : Tensor = aten::sum(%s_$, %none)"},
    {"mean of matrix", 2, "%s_$ : Tensor = aten::mul(%in_$, %in_$)\n  %$ : Tensor = aten::mean(%s_$, %none)"},
    {"amax", 1, "%s_$ : Tensor = aten::mul(%in_$, %in_$)\n  %$ : Tensor = aten::amax(%s_$, %all, %false)"},
    {"element", 1, "%s_$ : Tensor = aten::mul(%in_$, %in_$)\n  %$ : Tensor = aten::select(%s_$, %zero, %one)"},
    {"expanded", 0, "%s_$ : Tensor = aten::mul(%in_$, %in_$)\n  %$ : Tensor = aten::expand(%s_$, %four, %false)"},
};

std::string operand_text(const OperandForm& form, const std::string& name) {
  std::string text = form.text;
  for (size_t at = text.find('$'); at != std::string::npos; at = text.find('$')) {
    text.replace(at, 1, name);
  }
  return text;
}

std::string graph_text(const std::string& inputs, const std::string& operands, const std::string& op) {
  return "graph(" + inputs + R"():
  %none : NoneType = prim::Constant()
  %false : bool = prim::Constant[value=0]()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %all : int[] = prim::Constant[value=[0]]()
  %four : int[] = prim::Constant[value=[4]]()
  )" + operands +
         "\n  %result : Tensor = " + op + "\n  %twice : Tensor = aten::mul(%result, %result)\n  return (%twice)\n";
}

at::Tensor input_of(int64_t rank, at::ScalarType dtype, double first) {
  const at::Tensor values = at::full({4}, first) + at::arange(4) * 0.37;
  const at::Tensor given = values.to(dtype);
  return rank == 0 ? given[0].clone() : rank == 1 ? given : given.view({1, 4}).clone();
}

// Programs with kernels, beside the same programs without.
class Promotion : public ::testing::Test {
 protected:
  void compare(const std::string& text, const std::vector<c10::IValue>& operands, const std::string& described) {
    CountedKernels kernels(kernel_widths().at(0));
    const auto with_kernels = plan_with_kernels(text, kernels);
    const auto ordinary = lower(graph_of(text));
    ASSERT_TRUE(ordinary) << text;
    const auto [expected, error] = results_of(**ordinary, operands);
    const auto [got, got_error] = results_of(*with_kernels, operands);
    ASSERT_EQ(got.size(), expected.size()) << described << "\n" << error << "\n" << got_error << "\n" << text;
    runs_ += kernels.counts().runs;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].scalar_type(), expected[i].scalar_type()) << described << "\n" << text;
      ASSERT_EQ(got[i].sizes(), expected[i].sizes()) << described << "\n" << text;
      const double tolerance = got[i].scalar_type() == at::kBFloat16 ? 0.02 : 1e-5;
      EXPECT_TRUE(at::allclose(got[i].to(at::kDouble), expected[i].to(at::kDouble), tolerance, tolerance, true))
          << described << "\n"
          << got[i] << expected[i] << text;
    }
  }

  void compare_pair(const OperandForm& left, const OperandForm& right, at::ScalarType left_dtype, at::ScalarType right_dtype,
                    const std::string& op) {
    const std::string text =
        graph_text("%in_a : Tensor, %in_b : Tensor", operand_text(left, "a") + "\n  " + operand_text(right, "b"), op);
    const std::string described = std::string(left.name) + " of " + c10::toString(left_dtype) + ", " + right.name + " of " +
                                  c10::toString(right_dtype) + ": " + op;
    compare(text, {input_of(left.rank, left_dtype, 1.3), input_of(right.rank, right_dtype, 0.6)}, described);
  }

  const at::NoGradGuard no_grad_;
  size_t runs_ = 0;
};

TEST_F(Promotion, IsLibTorchsForAllFormsOfOperands) {
  for (size_t i = 0; i < std::size(kForms); ++i) {
    for (size_t j = 0; j <= i; ++j) {
      for (const at::ScalarType left_dtype : kMixedDtypes) {
        for (const at::ScalarType right_dtype : kMixedDtypes) {
          if (left_dtype != right_dtype) {
            compare_pair(kForms[i], kForms[j], left_dtype, right_dtype, "aten::add(%a, %b, %one)");
          }
        }
      }
    }
  }
  EXPECT_GT(runs_, 400U);
}

TEST_F(Promotion, IsLibTorchsForOperatorsOfAllKinds) {
  const char* const kOperators[] = {"aten::div(%a, %b)", "aten::maximum(%a, %b)", "aten::pow(%a, %b)",
                                    "aten::eq(%a, %b)",  "aten::atan2(%a, %b)",   "aten::mul(%b, %a)"};
  for (const char* op : kOperators) {
    for (const OperandForm& left : kForms) {
      for (const at::ScalarType right_dtype : {at::kDouble, at::kInt}) {
        compare_pair(left, kForms[1], at::kFloat, right_dtype, op);
        compare_pair(left, kForms[0], at::kFloat, right_dtype, op);
      }
    }
  }
  EXPECT_GT(runs_, 80U);
}

TEST_F(Promotion, IsLibTorchsForNumbers) {
  const std::map<std::string, c10::IValue> kNumbers = {{"int", 3}, {"float", 0.75}};
  for (const auto& [type, number] : kNumbers) {
    const std::string value = number.isDouble() ? "0.75" : "3";
    const std::string constant = "\n  %n : " + type + " = prim::Constant[value=" + value + "]()";
    for (const OperandForm& form : kForms) {
      for (const at::ScalarType dtype : kMixedDtypes) {
        const std::string described = std::string(form.name) + " of " + c10::toString(dtype) + " and " + type;
        const at::Tensor input = input_of(form.rank, dtype, 1.3);
        compare(graph_text("%in_a : Tensor", operand_text(form, "a") + constant, "aten::mul(%a, %n)"), {input}, described);
        compare(graph_text("%in_a : Tensor, %n : " + type, operand_text(form, "a"), "aten::mul(%a, %n)"), {input, number},
                described + " of each call");
      }
    }
  }
  EXPECT_GT(runs_, 60U);
}

}  // namespace
}  // namespace sconce::testing
