#include "tests/passes/autocast/under_autocast.h"

#include "tests/support/autocast_region.h"
#include "tests/support/graphs.h"
#include "tests/support/torch_graph.h"

#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace sconce::testing {

void expect_text(const Graph& graph, const std::string& expected) {
  for (const Violation& violation : find_violations(graph)) {
    ADD_FAILURE() << violation.check << ": " << violation.message << "\n" << print(graph);
  }
  EXPECT_EQ(print(*parse(print(graph))), print(*parse(expected)));
}

void expect_results_under_autocast(const std::string& before, const Graph& after,
                                   const std::vector<c10::IValue>& arguments) {
  const c10::NoGradGuard no_grad;
  const AutocastRegion region(at::kCPU, at::kBFloat16);
  torch::jit::Stack expected = arguments;
  TorchGraph(print(*parse(before))).interpret(expected);
  auto plan = lower(after.clone()).value_or_throw("the graph has no plan");
  plan->set_excludes_autocast();
  torch::jit::Stack found = arguments;
  run_plan(*plan, found, AutogradUse::kNone);
  EXPECT_TRUE(agree(found, expected)) << print(after);
}

}  // namespace sconce::testing
