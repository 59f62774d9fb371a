// Kernels on operands of every layout: sizes and strides of results are those that the operators give.
#include "tests/fusion/rule_check.h"

#include "fusion/program/operators.h"
#include "ops/op.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <set>

namespace sconce::testing {
namespace {

class KernelLayouts : public ::testing::TestWithParam<size_t> {
 protected:
  const at::NoGradGuard no_grad_;
};

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

TEST_P(KernelLayouts, AgreeOnEveryLayout) {
  for (const c10::OperatorHandle& op : operators_in_part()) {
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
TEST_P(KernelLayouts, AgreeOnDimensionsOfOneElement) {
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

INSTANTIATE_TEST_SUITE_P(Lanes, KernelLayouts, ::testing::ValuesIn(kernel_widths()),
                         [](const auto& lanes) { return std::to_string(lanes.param); });

}  // namespace
}  // namespace sconce::testing
