// Autocast for any device, in plans.
#include "tests/support/autocast_region.h"
#include "tests/support/cuda_on_host.h"
#include "tests/support/graphs.h"

#include "lower/lower.h"
#include "plan/run_plan.h"
#include "plan/step.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace sconce {
namespace {

using testing::AutocastRegion;
using testing::CudaOnHost;

constexpr const char* kProduct =
    "graph(%x : Tensor, %w : Tensor):\n"
    "  %y : Tensor = aten::mm(%x, %w)\n"
    "  return (%y)\n";

TEST(Autocast, ObservesOperatorsOnEveryDevice) {
  EXPECT_FALSE(operators_are_observed());
  for (const at::DeviceType device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    const AutocastRegion region(device, at::kBFloat16);
    EXPECT_TRUE(operators_are_observed()) << c10::DeviceTypeName(device);
  }
  EXPECT_FALSE(operators_are_observed());
}

TEST(Autocast, IsSwitchedOffOnAllDevicesWhereTheGraphHasItsCasts) {
  const CudaOnHost cuda;
  const c10::NoGradGuard no_grad;
  auto plan = lower(testing::graph_of(kProduct)).value_or_throw("the graph has no plan");
  const auto dtype_of_result = [&] {
    torch::jit::Stack stack = {cuda.tensor(at::randn({2, 2})), cuda.tensor(at::randn({2, 2}))};
    run_plan(*plan, stack, AutogradUse::kNone);
    return stack.at(0).toTensor().scalar_type();
  };
  const AutocastRegion region(at::kCUDA, at::kBFloat16);
  EXPECT_EQ(dtype_of_result(), at::kBFloat16);
  plan->set_excludes_autocast();
  EXPECT_EQ(dtype_of_result(), at::kFloat);
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCUDA));
}

// Calls inside and outside of regions, in turn.
TEST(Autocast, OnCudaCastsInEachCall) {
  const CudaOnHost cuda;
  const c10::NoGradGuard no_grad;
  GraphExecutor executor(testing::graph_of("graph(%x : Tensor, %w : Tensor):\n"
                                           "  %m : Tensor = aten::mm(%x, %w)\n"
                                           "  %r : Tensor = aten::relu(%m)\n"
                                           "  %e : Tensor = aten::exp(%r)\n"
                                           "  return (%e, %r)\n"),
                         "f", Options().compile(CompileMode::kBlocking));
  const at::Tensor x = cuda.tensor(at::randn({3, 4}));
  const at::Tensor w = cuda.tensor(at::randn({4, 5}));
  for (int call = 0; call < 9; ++call) {
    std::optional<AutocastRegion> region;
    if (call % 3 != 0) {
      region.emplace(at::kCUDA, call % 3 == 1 ? at::kBFloat16 : at::kHalf);
    }
    torch::jit::Stack stack = {x, w};
    executor.run(stack);
    const at::Tensor expected = x.mm(w).relu();
    const at::Tensor exponentials = expected.exp();
    EXPECT_EQ(stack.at(0).toTensor().scalar_type(), at::kFloat) << "call " << call;
    EXPECT_EQ(stack.at(1).toTensor().scalar_type(), expected.scalar_type()) << "call " << call;
    EXPECT_TRUE(at::equal(cuda.values(stack.at(0).toTensor()), cuda.values(exponentials))) << "call " << call;
    EXPECT_TRUE(at::equal(cuda.values(stack.at(1).toTensor()), cuda.values(expected))) << "call " << call;
  }
}

}  // namespace
}  // namespace sconce
