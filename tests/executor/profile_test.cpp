// Profiled runs: what they see, that they change nothing, and that they end.
#include "tests/support/graphs.h"

#include "ir/facts.h"
#include "ir/text/parse.h"

#include <sconce/graph_executor.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <thread>

namespace sconce {
namespace {

using testing::graph_of;
using ::testing::HasSubstr;

const char* const kText =
    "graph(%x : Tensor, %flag : bool, %n : int):\n"
    "  %yes : bool = prim::Constant[value=1]()\n"
    "  %y : Tensor = prim::If(%flag)\n"
    "    block0():\n"
    "      %a : Tensor = aten::neg(%x)\n"
    "      -> (%a)\n"
    "    block1():\n"
    "      %b : Tensor = aten::relu(%x)\n"
    "      -> (%b)\n"
    "  %z : Tensor = prim::Loop(%n, %yes, %y)\n"
    "    block0(%i : int, %p : Tensor):\n"
    "      %q : Tensor = aten::exp(%p)\n"
    "      -> (%yes, %q)\n"
    "  return (%z)\n";

at::Tensor call(GraphExecutor& executor, const at::Tensor& x, bool flag, int64_t n) {
  torch::jit::Stack stack = {x, flag, n};
  executor.run(stack);
  return stack.at(0).toTensor();
}

TEST(Profile, RecordsShapesBranchesAndRounds) {
  GraphExecutor executor(graph_of(kText), "forward", Options().profiled_runs(4));
  for (const auto& [rows, flag, n] : {std::tuple(2, true, 3), std::tuple(5, true, 0), std::tuple(2, false, 1)}) {
    const at::Tensor x = at::rand({rows, 3});
    at::Tensor expected = flag ? -x : x.relu();
    for (int i = 0; i < n; ++i) {
      expected = expected.exp();
    }
    EXPECT_TRUE(at::equal(call(executor, x, flag, n), expected));
  }
  const auto profile = executor.explain().profile;
  ASSERT_TRUE(profile.has_value());
  EXPECT_EQ(profile->runs, 3U);
  ASSERT_EQ(profile->branches.size(), 1U);
  EXPECT_EQ(profile->branches[0].taken, 2U);
  EXPECT_EQ(profile->branches[0].not_taken, 1U);
  ASSERT_EQ(profile->loops.size(), 1U);
  EXPECT_EQ(profile->loops[0].reached, 3U);
  EXPECT_EQ(profile->loops[0].iterations, 4U);
  // The first size changed; relu ran once, on two rows.
  EXPECT_THAT(profile->graph, HasSubstr("%x : Float(*, 3, strides=[3, 1], requires_grad=0, device=cpu)"));
  EXPECT_THAT(profile->graph, HasSubstr("Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu) = aten::relu"));
}

TEST(Profile, EndsAfterTheNumberOfRunsAskedFor) {
  GraphExecutor executor(graph_of(kText), "forward", Options().profiled_runs(4));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 25; ++n) {
        call(executor, at::ones({2}), true, 1);
      }
    });
  }
  threads.clear();
  const Explanation explanation = executor.explain();
  EXPECT_EQ(explanation.profile->runs, 4U);
  EXPECT_EQ(explanation.counters.invocations, 100U);
  EXPECT_EQ(explanation.counters.cache_hits + explanation.counters.cache_misses, 96U);
}

TEST(Profile, GradientsFlowThroughAProfiledRun) {
  GraphExecutor executor(graph_of(kText), "forward", Options().profiled_runs(1));
  const at::Tensor x = at::ones({2}).requires_grad_();
  call(executor, x, true, 1).sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), -(-x).exp()));
  EXPECT_THAT(executor.explain().profile->graph, HasSubstr("requires_grad=1"));
}

TEST(Profile, IsAbsentWhenNoRunsAreProfiled) {
  GraphExecutor executor(graph_of(kText), "forward", Options());
  EXPECT_FALSE(executor.explain().profile.has_value());
}

TEST(CommonFacts, KeepWhatBothSay) {
  const TensorFacts a = facts_of(at::zeros({2, 3}));
  EXPECT_EQ(common_facts(a, a), a);
  EXPECT_EQ(to_string(common_facts(a, facts_of(at::zeros({2, 4})))),
            "Float(2, *, strides=[*, 1], requires_grad=0, device=cpu)");
  EXPECT_EQ(to_string(common_facts(a, facts_of(at::zeros({2, 3}, at::kDouble)))),
            "Tensor(2, 3, strides=[3, 1], requires_grad=0, device=cpu)");
  EXPECT_FALSE(common_facts(a, facts_of(at::zeros({2}))).sizes.has_value());
  EXPECT_FALSE(common_facts(a, facts_of(at::Tensor())).defined.has_value());
}

}  // namespace
}  // namespace sconce
