// Every operator that kernels compute, beside the operator itself.
#include "tests/fusion/kernel_call.h"
#include "tests/fusion/rule_table.h"
#include "tests/support/graphs.h"

#include "fusion/channels.h"
#include "fusion/folds.h"
#include "fusion/operators.h"
#include "ops/op.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <unordered_set>

namespace sconce::testing {
namespace {

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kBool};

std::vector<c10::OperatorHandle> operators_with_rules() {
  std::vector<c10::OperatorHandle> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    // Operators that fold rows, and those with weights of channels, have tests of their own.
    if (handle && has_element_rule(op_of(handle->schema())) && !may_fold(op_of(handle->schema())) &&
        !is_of_channels(op_of(handle->schema()), 1)) {
      found.push_back(*handle);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return toString(a.operator_name()) < toString(b.operator_name()); });
  return found;
}

// The values that arguments other than tensors take, by the argument's name.
std::vector<c10::IValue> choices_for(const c10::Argument& argument) {
  const double infinity = std::numeric_limits<double>::infinity();
  const c10::IValue none;
  static const std::map<std::string, std::vector<c10::IValue>> choices = {
      {"alpha", {1, 2, -1, 0.3}},
      {"approximate", {"none", "tanh"}},
      {"beta", {1, 2, 0.5}},
      {"end", {2}},
      {"eps", {none, 0.1, 0.0}},
      {"exponent", {2, 3, 0.5, -0.5, -1, -2, 0, 1, 2.5, -3, 4, 2.0}},
      {"input_scale", {1, 1.5}},
      {"is_result", {false, true}},
      {"lambd", {0.5, 1, 0}},
      {"max", {none, 1, 2.5, 0, -2, std::nan("")}},
      {"max_val", {1, 2.5, 6}},
      {"min", {-1, none, 0.5, 0, 1, -infinity}},
      {"min_val", {-1, 0.5, 0}},
      {"nan", {none, 1.5}},
      {"neginf", {none, none, -2.5}},
      {"n", {2, 7}},
      {"negative_slope", {0.01, 0.5, -0.3}},
      {"other", {2, 2.5, -3, 0, 0.1, 16777217}},
      {"posinf", {none, 2.5, none}},
      {"rounding_mode", {none, "trunc", "floor"}},
      {"scale", {1, 1.5}},
      {"self", {2, 2.5, -1, 0, 1}},
      {"self_is_result", {false}},
      {"threshold", {0.5, 20, 0}},
      {"value", {1, 0.5, -2, 0, infinity}},
      {"weight", {0.3, 0.7, 0.5, 1}},
      {"x", {0.3, -1.5}},
  };
  const auto found = choices.find(argument.name());
  EXPECT_NE(found, choices.end()) << "no values for " << argument.name();
  std::vector<c10::IValue> allowed = found == choices.end() ? std::vector<c10::IValue>{none} : found->second;
  if (argument.type()->kind() != c10::TypeKind::OptionalType) {
    std::erase_if(allowed, [](const c10::IValue& value) { return value.isNone(); });
  }
  for (c10::IValue& value : allowed) {
    if (argument.type()->kind() == c10::TypeKind::FloatType && value.isInt()) {
      value = static_cast<double>(value.toInt());
    }
  }
  return allowed;
}

bool is_tensor_argument(const c10::Argument& argument) {
  const std::string type = argument.type()->str();
  return type == "Tensor" || type == "Tensor?" || type == "Optional[Tensor]";
}

// One operator, with the constants of variant `v`. Returns nothing when the operator has no such variant.
std::optional<OperatorCall> variant_of(const c10::OperatorHandle& op, size_t v, bool gives_numbers = false) {
  OperatorCall call{op, {}, {}};
  size_t variants = 1;
  bool has_number = false;
  for (const c10::Argument& argument : op.schema().arguments()) {
    call.constants.emplace_back();
    call.types.emplace_back("Tensor");
    if (is_tensor_argument(argument)) {
      continue;
    }
    const std::vector<c10::IValue> choices = choices_for(argument);
    variants = std::max(variants, choices.size());
    const c10::IValue choice = choices[v % choices.size()];
    if (gives_numbers && argument.type()->kind() == c10::TypeKind::NumberType && (choice.isInt() || choice.isDouble())) {
      call.types.back() = choice.isInt() ? "int" : "float";
      has_number = true;
    } else {
      call.constants.back() = choice;
    }
  }
  return v < variants && (!gives_numbers || has_number) ? std::optional(call) : std::nullopt;
}

bool is_condition(const c10::Argument& argument) { return argument.name() == "condition" || argument.name() == "mask"; }

// Compares calls of one operator on a kernel with the operator's, and counts.
class RuleCheck {
 public:
  RuleCheck(const OperatorCall& call, size_t lanes) : call_(call), kernel_(call, lanes) {
    row_ = find_rule_row(call.op.operator_name());
  }

  // Returns whether a kernel computed the result.
  bool compare(const std::vector<c10::IValue>& given) {
    const Outcome expected = run_eager(call_, given);
    const Outcome got = kernel_.run(given);
    const bool ran = kernel_.ran_kernel();
    if (!expected.result || !got.result) {
      EXPECT_EQ(expected.result.has_value(), got.result.has_value())
          << described(given) << "eager: " << expected.error << "\nkernel: " << got.error;
      return false;
    }
    if (!ran) {
      return false;
    }
    EXPECT_EQ(got.result->scalar_type(), expected.result->scalar_type()) << described(given);
    EXPECT_EQ(got.result->sizes(), expected.result->sizes()) << described(given);
    EXPECT_EQ(got.result->strides(), expected.result->strides()) << described(given);
    const at::Tensor first = first_tensor(given);
    const Distance allowed = row_ == nullptr ? Distance() : distance_for(*row_, expected.result->scalar_type());
    if (allowed.any_of_nan) {
      forget_results_of_nan(given, *got.result, *expected.result);
    }
    int64_t where = -1;
    const double distance = distance_between(*got.result, *expected.result, first, allowed, &where);
    if (distance > allowed.ulps) {
      ADD_FAILURE() << described(given) << distance << " ulps, allowed " << allowed.ulps
                    << at(given, *got.result, *expected.result, where);
    }
    return true;
  }

 private:
  static void forget_results_of_nan(const std::vector<c10::IValue>& given, at::Tensor got, at::Tensor expected) {
    for (const c10::IValue& value : given) {
      if (value.isTensor() && value.toTensor().is_floating_point()) {
        const at::Tensor is_nan = value.toTensor().isnan();
        got.masked_fill_(is_nan, 0);
        expected.masked_fill_(is_nan, 0);
      }
    }
  }

  static at::Tensor first_tensor(const std::vector<c10::IValue>& given) {
    for (const c10::IValue& value : given) {
      if (value.isTensor()) {
        return value.toTensor();
      }
    }
    return at::Tensor();
  }

  static std::string at(const std::vector<c10::IValue>& given, const at::Tensor& got, const at::Tensor& expected,
                        int64_t i) {
    if (i < 0) {
      return "";
    }
    std::ostringstream text;
    text.precision(17);
    const auto element = [&](const at::Tensor& tensor) {
      return tensor.expand(expected.sizes()).reshape({-1})[i].to(at::kDouble).item<double>();
    };
    text << " at " << i << ": kernel " << element(got) << ", eager " << element(expected) << ", of";
    for (const c10::IValue& value : given) {
      if (value.isTensor()) {
        text << " " << element(value.toTensor());
      } else {
        text << " " << value;
      }
    }
    return text.str();
  }

  std::string described(const std::vector<c10::IValue>& given) const {
    std::ostringstream text;
    text << toString(call_.op.operator_name());
    size_t next = 0;
    for (const auto& constant : call_.constants) {
      const c10::IValue& value = constant ? *constant : given[next++];
      if (value.isTensor()) {
        text << " " << value.toTensor().scalar_type() << value.toTensor().sizes() << "/" << value.toTensor().strides();
      } else {
        text << (constant ? " =" : " ") << value;
      }
    }
    return text.str() + ": ";
  }

  const OperatorCall call_;
  KernelCall kernel_;
  const RuleRow* row_ = nullptr;
};

// Arguments with tensors of these dtypes, by position among the tensors; those past the end have the last.
std::vector<c10::IValue> arguments_for(const OperatorCall& call, const std::vector<at::ScalarType>& dtypes, size_t variant,
                                       const std::function<at::Tensor(at::Tensor, size_t)>& shaped, int64_t count) {
  std::vector<c10::IValue> given;
  size_t tensors = 0;
  for (size_t i = 0; i < call.constants.size(); ++i) {
    if (call.constants[i]) {
      continue;
    }
    const c10::Argument& argument = call.op.schema().arguments()[i];
    if (!is_tensor_argument(argument)) {
      given.push_back(choices_for(argument)[variant % choices_for(argument).size()]);
      continue;
    }
    const bool is_mask = is_condition(argument);
    const at::ScalarType dtype = is_mask ? at::kBool : dtypes[std::min(tensors, dtypes.size() - 1)];
    at::Tensor values = special_values(count, dtype, i, 7 + static_cast<uint64_t>(count));
    if (argument.name() == "n" && dtype != at::kBool) {
      values = values.clamp(dtype == at::kByte ? 0 : -2, 20);  // the degree of a polynomial: LibTorch counts up to it
    }
    if (call.op.schema().name() == "aten::lcm" && dtype != at::kBool) {
      values = values.clamp_min(dtype == at::kByte ? 0 : -1000);  // LibTorch's quotient of the smallest integer traps
    }
    // The value that fills must have no dimensions.
    const bool is_zero_dim = argument.name() == "value";
    given.emplace_back(is_zero_dim ? special_values(12, dtype, 0)[11] : shaped(values, i));
    tensors += is_mask ? 0 : 1;
  }
  return given;
}

at::Tensor as_it_is(at::Tensor values, size_t) { return values; }

class KernelRules : public ::testing::TestWithParam<size_t> {
 protected:
  const at::NoGradGuard no_grad_;
};

class KernelTypes : public ::testing::Test {
 protected:
  static size_t GetParam() { return kernel_widths().at(0); }
  const at::NoGradGuard no_grad_;
};

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

TEST(KernelRuleTable, StandsInTheDocs) {
  EXPECT_NE(read_text(tests_dir() + "/../docs/kernels.md").find(rule_table_text()), std::string::npos) << rule_table_text();
}

// The functions that kernels compute in line, beside float64: every 1009th float32, of either sign.
TEST(InlineFunctions, AreWithinTwoUlps) {
  const at::NoGradGuard no_grad;
  constexpr int64_t kFloats = 0x7F800000 / 1009;
  const at::Tensor bits = (at::arange(kFloats, at::kLong) * 1009).to(at::kInt);
  const at::Tensor positive = bits.view(at::kFloat);
  const at::Tensor x = at::cat({positive, -positive});
  for (const char* name : {"aten::exp", "aten::tanh", "aten::erf"}) {
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

// Each operator on operands of one dtype. Kernels must run exactly for the dtypes that the table lists.
TEST_P(KernelRules, AgreeOnOperandsOfOneDtype) {
  std::map<const RuleRow*, std::set<at::ScalarType>> computed;
  std::unordered_set<c10::OperatorName> ran;
  for (const c10::OperatorHandle& op : operators_with_rules()) {
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
  for (const c10::OperatorHandle& op : operators_with_rules()) {
    EXPECT_TRUE(ran.contains(op.operator_name())) << "no kernel computed " << toString(op.operator_name());
  }
  for (const RuleRow& row : rule_rows()) {
    for (const at::ScalarType dtype : kDtypes) {
      EXPECT_EQ(computed[&row].contains(dtype), contains(row.dtypes, dtype)) << row.name << " of " << dtype;
    }
  }
}

// The polynomials share a rule: one stands for all where programs do not depend on the function.
bool is_one_of_many(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name.find("_polynomial_") != std::string::npos && name != "aten::special_chebyshev_polynomial_t";
}

// Numbers that each call gives.
TEST_F(KernelTypes, AgreeOnNumbersOfEachCall) {
  for (const c10::OperatorHandle& op : operators_with_rules()) {
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
  for (const c10::OperatorHandle& op : operators_with_rules()) {
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
  EXPECT_GT(computed, 500u);
}

// ---- layouts

struct Layout {
  const char* name;
  at::Tensor (*make)(at::Tensor values);  // of 4 x 6 x 5 x 8 elements or fewer, with a shape that broadcasts to it
};

at::Tensor first_of(const at::Tensor& values, int64_t count) { return values.slice(0, 0, count).clone(); }

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"contiguous", [](at::Tensor v) { return v.reshape({4, 6, 5, 8}); }},
      {"channels last", [](at::Tensor v) { return v.reshape({4, 5, 8, 6}).permute({0, 3, 1, 2}); }},
      {"transposed", [](at::Tensor v) { return v.reshape({4, 6, 8, 5}).transpose(2, 3); }},
      {"permuted", [](at::Tensor v) { return v.reshape({8, 5, 6, 4}).permute({3, 2, 1, 0}); }},
      {"sliced by 2", [](at::Tensor v) { return at::cat({v, v}).reshape({4, 6, 5, 16}).slice(3, 0, 16, 2); }},
      {"rows of wider", [](at::Tensor v) { return at::cat({v, v}).reshape({4, 6, 5, 16}).slice(3, 3, 11); }},
      {"expanded", [](at::Tensor v) { return first_of(v, 40).reshape({1, 1, 5, 8}).expand({4, 6, 5, 8}); }},
      {"row", [](at::Tensor v) { return first_of(v, 8); }},
      {"column", [](at::Tensor v) { return first_of(v, 5).reshape({5, 1}); }},
      {"channels", [](at::Tensor v) { return first_of(v, 6).reshape({6, 1, 1}); }},
      {"batches", [](at::Tensor v) { return first_of(v, 4).reshape({4, 1, 1, 1}); }},
      {"images", [](at::Tensor v) { return first_of(v, 160).reshape({4, 1, 5, 8}); }},
      {"images of columns", [](at::Tensor v) { return first_of(v, 160).reshape({4, 8, 5, 1}).permute({0, 3, 2, 1}); }},
      {"one element", [](at::Tensor v) { return first_of(v, 1); }},
      {"no dimension", [](at::Tensor v) { return first_of(v, 1)[0]; }},
  };
  return all;
}

TEST_P(KernelRules, AgreeOnEveryLayout) {
  for (const c10::OperatorHandle& op : operators_with_rules()) {
    const auto call = variant_of(op, 0);
    const auto& declared = op.schema().arguments();
    const auto tensors = std::count_if(declared.begin(), declared.end(), is_tensor_argument);
    const std::string name = toString(op.operator_name());
    // Operators of one family share their loops: all pairs for some of them, a few for the others.
    static const std::set<std::string> kThorough = {"aten::add.Tensor", "aten::where.self", "aten::masked_fill.Scalar",
                                                    "aten::lt.Tensor",  "aten::exp",        "aten::mul.Scalar"};
    const bool is_thorough = kThorough.contains(name);
    RuleCheck check(*call, GetParam());
    const at::ScalarType dtype = contains(find_rule_row(op.operator_name())->dtypes, at::kFloat) ? at::kFloat : at::kLong;
    for (size_t a = 0; a < layouts().size(); ++a) {
      for (size_t b = 0; b < (tensors > 1 ? layouts().size() : 1); ++b) {
        if (!is_thorough && b > 1 && (a + b) % 6 != 0) {
          continue;
        }
        const auto shaped = [&](at::Tensor values, size_t i) {
          return layouts()[i == 0 ? a : i == 1 ? b : (a + b) % 7].make(values);
        };
        const auto given = arguments_for(*call, {dtype}, 0, shaped, 960);
        if (needs_equal_operands(op_of(op.schema()))) {
          check.compare(given);
          continue;
        }
        EXPECT_TRUE(check.compare(given)) << name << ", " << layouts()[a].name << ", " << layouts()[b].name
                                          << ": no kernel ran";
      }
    }
  }
}

// Dimensions of one element or none have strides that say nothing; LibTorch's choice still shows.
TEST_P(KernelRules, AgreeOnDimensionsOfOneElement) {
  for (const char* name : {"aten::add", "aten::relu", "aten::mul"}) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, std::string(name) == "aten::add"   ? "Tensor"
                                                                         : std::string(name) == "aten::mul" ? "Scalar"
                                                                                                            : "");
    const auto call = variant_of(op, 0);
    RuleCheck check(*call, GetParam());
    const at::Tensor v = special_values(960, at::kFloat, 0);
    std::vector<at::Tensor> forms = {v.slice(0, 0, 5).reshape({1, 5}).t(),
                                     v.slice(0, 0, 5).reshape({5, 1}),
                                     v.slice(0, 0, 6).reshape({1, 6, 1, 1}),
                                     v.slice(0, 0, 6).reshape({1, 1, 1, 6}).permute({0, 3, 1, 2}),
                                     v.slice(0, 0, 60).reshape({2, 1, 5, 6}),
                                     v.slice(0, 0, 60).reshape({2, 5, 6, 1}).permute({0, 3, 1, 2}),
                                     v.slice(0, 0, 0).reshape({0, 4}),
                                     v.slice(0, 0, 0).reshape({4, 0, 3}),
                                     v.slice(0, 0, 0).reshape({3, 0, 4}).permute({2, 1, 0}),
                                     v.slice(0, 0, 1).reshape({}),
                                     v.slice(0, 0, 1).reshape({1, 1, 1})};
    for (const at::Tensor& a : forms) {
      for (const at::Tensor& b : forms) {
        std::vector<c10::IValue> given = {a};
        if (call->types.size() > 1 && !call->constants[1]) {
          given.emplace_back(b);
        }
        check.compare(given);
      }
    }
  }
}

// A result that takes its dtype from the default is left to LibTorch, whatever the default was when the kernel was made.
TEST_F(KernelTypes, AgreeUnderAnotherDefaultDtype) {
  const auto before = c10::get_default_dtype();
  for (const c10::OperatorHandle& op : operators_with_rules()) {
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
