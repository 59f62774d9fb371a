// Rule R2: nothing but the frame holds planned memory after its last use.
#include "plan/shell_check.h"

#include "tests/support/graphs.h"

#include "ir/schema_match.h"
#include "kernels/kernel_table.h"
#include "lower/lower.h"
#include "ops/op.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/library.h>

#include <dlfcn.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sconce {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<at::Tensor>& hoard() {
  static std::vector<at::Tensor> tensors;
  return tensors;
}

// An operator of which sconce believes that it keeps nothing.
TORCH_LIBRARY_FRAGMENT(quantized, library) {
  library.def("sconce_test_hoard(Tensor x) -> int", [](const at::Tensor& x) {
    hoard().push_back(x);
    return static_cast<int64_t>(hoard().size());
  });
}

std::unique_ptr<Plan> lowered(std::unique_ptr<Graph> graph, LoweringOptions form) {
  auto plan = lower(std::move(graph), nullptr, nullptr, form);
  return plan ? std::move(*plan) : nullptr;
}

class ShellChecks : public ::testing::Test {
 protected:
  void SetUp() override {
    check_shells(true);
    static void* const operators = dlopen(testing::plugin_file("custom_operators").c_str(), RTLD_NOW);
    ASSERT_NE(operators, nullptr) << dlerror();
  }
  void TearDown() override {
    hoard().clear();
    c10::Dispatcher::singleton().findSchemaOrThrow("sconce_test::clear", "").typed<void()>().call();
    check_shells(before_);
  }

  // Runs the text several times, with steps that compute something else after it. Each call gives what ordinary steps give.
  void expect_right(const std::string& text, const std::vector<c10::IValue>& arguments) {
    const at::NoGradGuard no_grad;
    const LoweringOptions prepared{.is_prepared = true, .limits = {.is_exact = true}};
    const auto plan = lowered(testing::graph_of(text), prepared);
    const auto ordinary = lowered(testing::graph_of(text), {});
    EXPECT_GT(plan->state_count(), 0U);
    for (int call = 0; call < 4; ++call) {
      torch::jit::Stack expected = arguments;
      torch::jit::Stack got = arguments;
      run_plan(*ordinary, expected, AutogradUse::kNone);
      run_plan(*plan, got, AutogradUse::kNone);
      EXPECT_TRUE(testing::agree(got, expected)) << "call " << call;
    }
  }

 private:
  const bool before_ = shells_are_checked();
};

TEST_F(ShellChecks, NameTheStepTheOperatorAndTheLineThatHoldsOn) {
  const at::NoGradGuard no_grad;
  const auto graph = testing::graph_of_source(R"(
def f(x):
    y = torch.tanh(x)
    n = torch.numel(y)
    z = torch.exp(x)
    return torch.cumsum(z, 0), n
)");
  Node* const numel = testing::find_node(*graph, "aten::numel");
  Node* const hoards =
      graph->create(c10::Symbol::fromQualString("quantized::sconce_test_hoard"), {numel->input(0)}, /*outputs=*/1);
  hoards->output()->set_type(c10::IntType::get());
  hoards->set_location(numel->location());
  hoards->insert_before(numel);
  ASSERT_TRUE(resolve(*hoards));
  numel->output()->replace_all_uses_with(hoards->output());
  numel->erase();
  const auto plan = lowered(graph->clone(), LoweringOptions{.is_prepared = true});
  torch::jit::Stack stack = {at::rand({3})};
  EXPECT_THAT(testing::message_of([&] { run_plan(*plan, stack, AutogradUse::kNone); }),
              AllOf(HasSubstr("rule R2"), HasSubstr("the result of aten::tanh"),
                    HasSubstr(", quantized::sconce_test_hoard (<string>:4:"), HasSubstr("something outside the frame")));
  check_shells(false);
  stack = {at::rand({3})};
  run_plan(*plan, stack, AutogradUse::kNone);
}

TEST_F(ShellChecks, AQuantizedTensorAndItsCopyHoldTheScales) {
  const std::vector<c10::IValue> arguments = {at::rand({3, 4}), at::rand({3}, at::kDouble) + 0.5, at::zeros({3}, at::kLong)};
  for (const std::string holder : {"%q", "%copy"}) {
    expect_right(R"(graph(%x : Tensor, %s : Tensor, %zp : Tensor):
  %axis : int = prim::Constant[value=0]()
  %qint8 : int = prim::Constant[value=12]()
  %none : NoneType = prim::Constant()
  %one : int = prim::Constant[value=1]()
  %sc : Tensor = aten::mul(%s, %s)
  %q : Tensor = aten::quantize_per_channel(%x, %sc, %zp, %axis, %qint8)
  %copy : Tensor = aten::clone(%q, %none)
  %a : Tensor = aten::add(%s, %s, %one)
  %t : Tensor = aten::exp(%a)
  %r : Tensor = aten::dequantize()" +
                     holder + R"()
  return (%r, %t)
)",
                 arguments);
  }
}

TEST_F(ShellChecks, ASparseTensorHoldsItsValues) {
  const std::vector<c10::IValue> arguments = {at::arange(4), at::arange(3), at::rand({3})};
  for (const char* name : {"sparse_compressed_tensor", "_sparse_compressed_tensor_unsafe"}) {
    expect_right(std::string(R"(graph(%crow : Tensor, %col : Tensor, %x : Tensor):
  %three : int = prim::Constant[value=3]()
  %sizes : int[] = prim::ListConstruct(%three, %three)
  %none : NoneType = prim::Constant()
  %csr : int = prim::Constant[value=2]()
  %one : int = prim::Constant[value=1]()
  %v : Tensor = aten::mul(%x, %x)
  %s : Tensor = aten::)") +
                     name +
                     R"((%crow, %col, %v, %sizes, %none, %csr, %none, %none)
  %f : Tensor = aten::sin(%s)
  %a : Tensor = aten::add(%x, %x, %one)
  %t : Tensor = aten::exp(%a)
  %r : Tensor = aten::to_dense(%f, %none, %none)
  return (%r, %t)
)",
                 arguments);
  }
}

TEST_F(ShellChecks, ACustomOperatorMayKeepItsOperands) {
  const at::NoGradGuard no_grad;
  for (const char* const tap : {"%n : int = sconce_test::tap(%y)",
                                "%l : Tensor[] = prim::ListConstruct(%y, %y)\n  %n : int = sconce_test::tap_all(%l)"}) {
    const auto plan = lowered(testing::graph_of(std::string(R"(graph(%x : Tensor):
  %one : int = prim::Constant[value=1]()
  %y : Tensor = aten::mul(%x, %x)
  )") + tap + R"(
  %a : Tensor = aten::add(%x, %x, %one)
  %t : Tensor = aten::exp(%a)
  return (%t, %n)
)"),
                              LoweringOptions{.is_prepared = true});
    const auto tapped =
        c10::Dispatcher::singleton().findSchemaOrThrow("sconce_test::tapped", "").typed<at::Tensor(int64_t)>();
    std::vector<std::pair<int64_t, at::Tensor>> expected;
    for (int call = 0; call < 4; ++call) {
      const at::Tensor x = at::rand({3});
      torch::jit::Stack stack = {x};
      run_plan(*plan, stack, AutogradUse::kNone);
      expected.emplace_back(stack[1].toInt() - 1, x * x);
    }
    for (const auto& [index, y] : expected) {
      EXPECT_TRUE(at::equal(tapped.call(index), y)) << tap << ", " << index;
    }
  }
}

// Else the memory of what they read would not be placed.
TEST(HeldOperands, PreparedOperatorsHoldNone) {
  size_t count = 0;
  for (const auto& registered : torch::jit::getAllOperators()) {
    const Op& op = op_of(registered->schema());
    if (find_kernel_row(op) != nullptr) {
      ++count;
      EXPECT_FALSE(op.results_may_hold_operands || op.may_keep_operands) << registered->schema();
    }
  }
  EXPECT_GT(count, 80U);
}

}  // namespace
}  // namespace sconce
