// Runs that leave autograd's layers out give what eager execution gives.
#include "tests/support/graphs.h"

#include "plan/lower.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

namespace sconce {
namespace {

using testing::agree;
using testing::graph_of;

at::Tensor triple_for_autograd(const at::Tensor& x) { return x * 3; }

TORCH_LIBRARY(sconce_plan_test, library) {
  library.def("triple_of_autograd(Tensor x) -> Tensor");
  library.def("triple_of_both(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(sconce_plan_test, Autograd, library) {
  library.impl("triple_of_autograd", triple_for_autograd);
  library.impl("triple_of_both", triple_for_autograd);
}
TORCH_LIBRARY_IMPL(sconce_plan_test, CompositeExplicitAutograd, library) {
  library.impl("triple_of_both", [](const at::Tensor& x) { return x * 3; });
}

std::string graph_of_operator(const std::string& name) {
  return "graph(%a : Tensor):\n  %b : Tensor = " + name + "(%a)\n  return (%b)\n";
}

TEST(BelowAutograd, AnOperatorWhoseOnlyKernelIsAutogradsRunsWhereNothingRequiresGrad) {
  const at::Tensor a = at::ones({2});
  EXPECT_TRUE(agree(testing::run(graph_of_operator("sconce_plan_test::triple_of_autograd"), {a}).at(0), a * 3));
}

bool first_step_may_skip_autograd(const std::string& name) {
  auto plan = lower(graph_of(graph_of_operator(name)));
  return (*plan)->steps()[0].step->may_skip_autograd();
}

TEST(BelowAutograd, RunsOperatorsWithAKernelForTheBackend) {
  EXPECT_FALSE(first_step_may_skip_autograd("sconce_plan_test::triple_of_autograd"));
  EXPECT_TRUE(first_step_may_skip_autograd("sconce_plan_test::triple_of_both"));
  EXPECT_TRUE(first_step_may_skip_autograd("aten::tanh")) << "a kernel of the CPU's";
  EXPECT_TRUE(first_step_may_skip_autograd("aten::square")) << "a composite kernel";
}

}  // namespace
}  // namespace sconce
