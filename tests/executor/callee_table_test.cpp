#include "executor/callee_table.h"

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

namespace sconce {
namespace {

// A service passes objects of other modules to an interface-typed argument and unloads the modules.
TEST(CalleeTable, KeepsTheCodeAliveThatItPlanned) {
  const auto callees = CalleeTable::make(Options());
  std::weak_ptr<torch::jit::CompilationUnit> unit;
  {
    const auto module = testing::module_of("def forward(self, x):\n    return x + 1\n");
    unit = module._ivalue()->compilation_unit();
    callees->find(module.get_method("forward").function());
  }
  EXPECT_FALSE(unit.expired());
}

TEST(CalleeTable, NeverRunsThePlanOfAnUnloadedMethodForAnotherOne) {
  const auto callees = CalleeTable::make(Options());
  for (int i = 0; i < 30; ++i) {
    const auto module = testing::module_of("def forward(self, x):\n    return x + " + std::to_string(i) + "\n");
    torch::jit::Stack stack = {module._ivalue(), at::zeros({2})};
    call(callees->find(module.get_method("forward").function()), stack);
    EXPECT_TRUE(testing::agree(stack.at(0), at::full({2}, static_cast<double>(i))));
  }
}

}  // namespace
}  // namespace sconce
