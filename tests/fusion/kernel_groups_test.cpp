// Generated groups of pointwise nodes: one plan with kernels and one without, over operands of several sizes.
//
//   SCONCE_GROUPS=20000 build/release/tests/fusion_test --gtest_filter='KernelGroups.*'    more of them
#include "tests/fusion/element_values.h"
#include "tests/fusion/kernel_call.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"

#include "fusion/kernel_width.h"
#include "plan/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace sconce::testing {
namespace {

// What kernels compute bitwise as the operators do, so that a chain of them is exact, too.
struct GroupOp {
  const char* text;  // A, B, C are operands
  int operands;
  char kinds;  // 'f': floating operands, 'a': floating ones or integers, 'c': compares, 'w': a condition and two operands
};
constexpr GroupOp kGroupOps[] = {
    {"aten::add(A, B, %one)", 2, 'a'},
    {"aten::sub(A, B, %one)", 2, 'a'},
    {"aten::mul(A, B)", 2, 'a'},
    {"aten::add(A, %three, %one)", 1, 'a'},
    {"aten::mul(A, %half)", 1, 'f'},
    {"aten::rsub(A, B, %one)", 2, 'a'},
    {"aten::neg(A)", 1, 'a'},
    {"aten::relu(A)", 1, 'a'},
    {"aten::abs(A)", 1, 'a'},
    {"aten::clamp(A, %minus, %three)", 1, 'a'},
    {"aten::div(A, %three)", 1, 'f'},
    {"aten::leaky_relu(A, %half)", 1, 'f'},
    {"aten::hardswish(A)", 1, 'f'},
    {"aten::floor(A)", 1, 'f'},
    {"aten::square(A)", 1, 'f'},
    {"aten::addcmul(A, B, C, %half)", 3, 'f'},
    {"aten::lerp(A, B, %half)", 2, 'l'},
    {"aten::sign(A)", 1, 'a'},
    {"aten::lt(A, B)", 2, 'c'},
    {"aten::ge(A, %three)", 1, 'c'},
    {"aten::eq(A, B)", 2, 'c'},
    {"aten::where(A, B, C)", 3, 'w'},
    {"aten::masked_fill(B, A, %three)", 2, 'm'},
};

class GroupGenerator {
 public:
  explicit GroupGenerator(uint64_t seed) : random_(seed) {}

  std::string text() {
    std::string body;
    const int inputs = 2 + pick(3);
    std::string signature;
    for (int i = 0; i < inputs; ++i) {
      const auto dtype = std::array{at::kFloat, at::kFloat, at::kFloat, at::kDouble, at::kBFloat16, at::kLong}[pick(6)];
      dtypes_.push_back(dtype);
      layouts_.push_back(pick(7));
      signature += (i == 0 ? "%v" : ", %v") + std::to_string(i) + " : Tensor";
    }
    const int nodes = 2 + pick(29);
    while (static_cast<int>(dtypes_.size()) < inputs + nodes) {
      body += node();
    }
    // The values that no node uses, and some of those that nodes of the group use, too.
    std::string results;
    for (size_t i = static_cast<size_t>(inputs); i < dtypes_.size(); ++i) {
      if (!used_.contains(static_cast<int>(i)) || pick(5) == 0) {
        results += (results.empty() ? "%v" : ", %v") + std::to_string(i);
      }
    }
    return "graph(" + signature + "):\n" + kConstants + body + "  return (" + results + ")\n";
  }

  // New operands of the same dtypes and layouts.
  std::vector<c10::IValue> operands(int64_t height, int64_t width) {
    std::vector<c10::IValue> values;
    for (size_t i = 0; i < layouts_.size(); ++i) {
      const auto made = [&](at::IntArrayRef sizes) { return (at::randn(sizes, at::kDouble) * 4).to(dtypes_[i]); };
      switch (layouts_[i]) {
        case 0: values.emplace_back(made({3, height, width})); break;
        case 1: values.emplace_back(made({3, width, height}).transpose(1, 2)); break;
        case 2: values.emplace_back(made({width})); break;
        case 3: values.emplace_back(made({height, 1})); break;
        case 4: values.emplace_back(made({3, height, 2 * width}).slice(2, 0, 2 * width, 2)); break;
        case 5: values.emplace_back(made({})); break;
        default: values.emplace_back(made({height, width, 3}).permute({2, 0, 1})); break;
      }
    }
    return values;
  }

 private:
  static constexpr const char* kConstants =
      "  %one : int = prim::Constant[value=1]()\n  %three : int = prim::Constant[value=3]()\n"
      "  %minus : int = prim::Constant[value=-2]()\n  %half : float = prim::Constant[value=0.5]()\n";

  int pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }

  // Returns a value for which `fits` holds, mostly a late one; -1 if there is none.
  template <typename Fits>
  int value(const Fits& fits) {
    std::vector<int> fitting;
    for (size_t i = 0; i < dtypes_.size(); ++i) {
      if (fits(dtypes_[i])) {
        fitting.push_back(static_cast<int>(i));
      }
    }
    const int count = static_cast<int>(fitting.size());
    return count == 0 ? -1 : fitting[static_cast<size_t>(pick(2) == 0 ? count - 1 - pick(std::min(count, 3)) : pick(count))];
  }

  // Appends a node, if its operands are there.
  std::string node() {
    const GroupOp& op = kGroupOps[pick(std::size(kGroupOps))];
    const auto is_number = [](at::ScalarType type) { return type != at::kBool; };
    const auto is_floating = [](at::ScalarType type) { return c10::isFloatingType(type); };
    const auto is_bool = [](at::ScalarType type) { return type == at::kBool; };
    std::vector<int> chosen;
    for (int i = 0; i < op.operands; ++i) {
      const bool is_condition = i == 0 && (op.kinds == 'w' || op.kinds == 'm');
      const bool is_first_dtype = op.kinds == 'l' && i > 0;
      chosen.push_back(is_condition ? value(is_bool)
                       : is_first_dtype
                           ? value([&](at::ScalarType type) { return type == dtypes_[static_cast<size_t>(chosen[0])]; })
                       : op.kinds == 'f' || op.kinds == 'l' || op.kinds == 'm' ? value(is_floating)
                                                                               : value(is_number));
      if (chosen.back() < 0) {
        return "";
      }
    }
    auto type = at::kBool;
    if (op.kinds != 'c') {
      const size_t first = op.kinds == 'w' || op.kinds == 'm' ? 1 : 0;
      type = dtypes_[static_cast<size_t>(chosen[first])];
      for (size_t i = first; i < chosen.size(); ++i) {
        type = c10::promoteTypes(type, dtypes_[static_cast<size_t>(chosen[i])]);
      }
    }
    std::string call;
    for (const char* at = op.text; *at != '\0'; ++at) {
      call += *at >= 'A' && *at <= 'C' ? "%v" + std::to_string(chosen[static_cast<size_t>(*at - 'A')]) : std::string(1, *at);
    }
    const std::string line = "  %v" + std::to_string(dtypes_.size()) + " : Tensor = " + call + "\n";
    dtypes_.push_back(type);
    used_.insert(chosen.begin(), chosen.end());
    return line;
  }

  std::mt19937_64 random_;
  std::vector<at::ScalarType> dtypes_;  // by value; the inputs first
  std::vector<int> layouts_;            // of the inputs
  std::set<int> used_;                  // values
};

// Returns the results, each element of a stack; the message if the plan raises.
std::pair<std::vector<at::Tensor>, std::string> results_of(const Plan& plan, const std::vector<c10::IValue>& operands) {
  try {
    torch::jit::Stack stack(operands.begin(), operands.end());
    run_plan(plan, stack, /*may_skip_autograd=*/true);
    std::vector<at::Tensor> results;
    for (const c10::IValue& value : stack) {
      results.push_back(value.toTensor());
    }
    return {results, ""};
  } catch (const std::exception& error) {
    return {{}, "raised"};
  }
}

TEST(KernelGroups, AgreeWithTheirNodes) {
  const at::NoGradGuard no_grad;
  const uint64_t count = environment_number("SCONCE_GROUPS", 1000);
  size_t runs = 0;
  size_t calls = 0;
  for (uint64_t seed = 1; seed <= count && !HasFailure(); ++seed) {
    GroupGenerator generator(seed);
    const std::string text = generator.text();
    CountedKernels kernels(kernel_lanes());
    const auto with_kernels = lower(graph_of(text), nullptr, nullptr, StepForm{.is_prepared = true, .groups = &kernels});
    const auto ordinary = lower(graph_of(text));
    ASSERT_TRUE(with_kernels && ordinary) << text;
    constexpr std::pair<int64_t, int64_t> kSizes[] = {{4, 5}, {7, 33}, {2, 1}, {4, 5}};
    for (const auto& [height, width] : kSizes) {
      const std::vector<c10::IValue> operands = generator.operands(height, width);
      const auto [expected, error] = results_of(**ordinary, operands);
      const auto [got, got_error] = results_of(**with_kernels, operands);
      ++calls;
      ASSERT_EQ(got_error, error) << "seed " << seed << "\n" << text;
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].scalar_type(), expected[i].scalar_type()) << "seed " << seed << "\n" << text;
        EXPECT_EQ(got[i].sizes(), expected[i].sizes()) << "seed " << seed;
        EXPECT_EQ(got[i].strides(), expected[i].strides())
            << "seed " << seed << ", result " << i << ", width " << width << "\n"
            << text;
        int64_t where = -1;
        EXPECT_EQ(distance_between(got[i], expected[i], got[i], Distance{.any_zero = true}, &where), 0)
            << "seed " << seed << ", result " << i << " at " << where << ", width " << width << "\n"
            << text;
      }
    }
    runs += kernels.counts().runs;
  }
  EXPECT_GT(runs * 2, calls) << "most calls run without kernels";
}

}  // namespace
}  // namespace sconce::testing
