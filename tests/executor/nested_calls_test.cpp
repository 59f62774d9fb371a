// What an operator does to the executor that runs it.
#include <sconce/graph_executor.h>

#include "tests/executor/failing_memory.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <functional>

namespace sconce {
namespace {

std::function<void()> act_within_operator;

TORCH_LIBRARY(sconce_executor_test, library) {
  library.def("act(Tensor x) -> Tensor", [](const at::Tensor& x) {
    act_within_operator();
    return x + 1;
  });
}

TEST(GraphExecutor, FreesWhatLeavesItsCacheWhileItRuns) {
  GraphExecutor executor(
      testing::graph_of("graph(%a : Tensor):\n  %b : Tensor = sconce_executor_test::act(%a)\n  return (%b)\n"), "f",
      Options{});
  int64_t kept = 0;
  act_within_operator = [&] {
    const int64_t before = testing::living_allocations();
    for (int i = 0; i < 1000; ++i) {
      executor.clear_cache();
    }
    kept = testing::living_allocations() - before;
  };
  std::vector<c10::IValue> stack = {at::ones({2})};
  executor.run(stack);
  EXPECT_LT(kept, 100) << "a long run holds back what others evict";
}

}  // namespace
}  // namespace sconce
