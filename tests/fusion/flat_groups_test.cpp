// Groups that only write in place: one kernel serves dense operands of all sizes.
#include "tests/fusion/kernel_call.h"
#include "tests/support/graphs.h"

#include "fusion/group_compilers.h"
#include "fusion/program/kernel_width.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

namespace sconce::testing {
namespace {

struct Operands {
  at::Tensor x, y;
};

// Runs one plan with all operands, one after the other, and compares it with the operators.
class FlatGroup {
 public:
  FlatGroup() : kernels_(kernel_lanes()), plan_(plan_with_kernels(kText, kernels_)) {}

  // Returns whether a kernel ran in the second of two calls: no group is prepared for long if each call is new.
  bool agrees(const std::function<Operands()>& make) {
    run_once(make);
    return run_once(make);
  }
  size_t preparations() const { return kernels_.counts().prepared + kernels_.counts().prepared_again; }

 private:
  bool run_once(const std::function<Operands()>& make) {
    const c10::NoGradGuard no_grad;
    const Operands own = make();
    const Operands expected = make();
    expected.x.mul_(0.5).add_(expected.y, 2).add_(1);
    const size_t runs = kernels_.counts().runs;
    torch::jit::Stack stack = {own.x, own.y};
    run_plan(*plan_, stack, AutogradUse::kNone);
    EXPECT_TRUE(at::equal(own.x, expected.x)) << own.x << expected.x;
    EXPECT_EQ(own.x._version(), expected.x._version());
    return kernels_.counts().runs != runs;
  }

  static constexpr const char* kText = R"(
graph(%x : Tensor, %y : Tensor):
  %half : float = prim::Constant[value=0.5]()
  %two : int = prim::Constant[value=2]()
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::mul_(%x, %half)
  %b : Tensor = aten::add_(%a, %y, %two)
  %c : Tensor = aten::add_(%b, %one, %one)
  return ()
)";
  CountedKernels kernels_;
  std::unique_ptr<Plan> plan_;
};

Operands of_sizes(at::IntArrayRef sizes) {
  return {at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes),
          at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes).neg()};
}

// The kernel of an empty call needs no code. That of the next call does.
TEST(FlatGroups, WaitForTheirCodeAfterAnEmptyCall) {
  const c10::NoGradGuard no_grad;
  const auto plan = plan_with_kernels(R"(
graph(%x : Tensor, %y : Tensor):
  %least : float = prim::Constant[value=0.125]()
  %most : float = prim::Constant[value=6.5]()
  %two : int = prim::Constant[value=2]()
  %a : Tensor = aten::clamp_(%x, %least, %most)
  %b : Tensor = aten::sub_(%a, %y, %two)
  %c : Tensor = aten::clamp_(%b, %least, %most)
  return ()
)",
                                      background_kernels());
  for (int call = 0; call < 200; ++call) {
    const int64_t elements = call % 3 == 1 ? 0 : 9 + call % 2;
    const Operands own = of_sizes({elements});
    const Operands expected = of_sizes({elements});
    expected.x.clamp_(0.125, 6.5).sub_(expected.y, 2).clamp_(0.125, 6.5);
    torch::jit::Stack stack = {own.x, own.y};
    run_plan(*plan, stack, AutogradUse::kNone);
    EXPECT_TRUE(at::equal(own.x, expected.x)) << "call " << call;
  }
}

TEST(FlatGroups, ArePreparedForOneSize) {
  FlatGroup group;
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{6, 7}, {5}, {1}, {}, {0, 3}, {2, 3, 4}, {100'003}, {1, 9}, {6, 7}}) {
    EXPECT_TRUE(group.agrees([&] { return of_sizes(sizes); })) << c10::IntArrayRef(sizes);
  }
  const auto transposed = [] {
    const Operands both = of_sizes({4, 6});
    return Operands{both.x.t(), both.y.t()};
  };
  EXPECT_TRUE(group.agrees(transposed));
  EXPECT_EQ(group.preparations(), 1U);
}

TEST(FlatGroups, AreForOperandsThatLieAlike) {
  FlatGroup group;
  const auto same = [] { return of_sizes({4, 6}); };
  const auto one_transposed = [] { return Operands{of_sizes({4, 6}).x, of_sizes({6, 4}).y.t()}; };
  const auto broadcast = [] { return Operands{of_sizes({4, 6}).x, of_sizes({6}).y}; };
  const auto with_gaps = [] {
    const Operands both = of_sizes({4, 6});
    return Operands{both.x.slice(1, 0, 3), both.y.slice(1, 0, 3)};
  };
  const auto of_other_dtype = [] { return Operands{of_sizes({4, 6}).x, of_sizes({4, 6}).y.to(at::kDouble)}; };
  const auto apart = [](int64_t by) {
    return [by] {
      const at::Tensor both = at::arange(40, at::kFloat);
      return Operands{both.slice(0, 0, 16), both.slice(0, by, by + 16)};
    };
  };
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(group.agrees(same));
    EXPECT_TRUE(group.agrees(one_transposed));
    EXPECT_TRUE(group.agrees(broadcast));
    EXPECT_TRUE(group.agrees(with_gaps));
    group.agrees(of_other_dtype);
    EXPECT_TRUE(group.agrees(apart(16)));
    EXPECT_FALSE(group.agrees(apart(0))) << "the same memory";
  }
}

}  // namespace
}  // namespace sconce::testing
