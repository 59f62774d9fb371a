#include "executor/callee_table.h"

#include "tests/support/graphs.h"

#include <sconce/module.h>

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

// ---- programs -------------------------------------------------------------------------------------------------------

Module load_model(const std::string& name, CompileMode compile) {
  return load(testing::models_dir() + "/" + name + ".pt", Options().compile(compile));
}

TEST(Programs, HavePlansOfTheirOwnForTheirArguments) {
  const Module module = load_model("interface_mixture", CompileMode::kBlocking);
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::rand({6, 8});
  torch::jit::Module reference = module.script_module();
  for (int call = 0; call < 3; ++call) {
    EXPECT_TRUE(testing::agree(module.forward({x}), reference.forward({x}), 1e-5));
  }
  const std::vector<Explanation> callees = module.method("forward").explain().callees;
  ASSERT_EQ(callees.size(), 2U) << "the methods of the two experts";
  size_t specialized = 0;
  for (const Explanation& callee : callees) {
    EXPECT_EQ(callee.plans.back().runs, callee.counters.invocations) << callee.method;
    EXPECT_GT(callee.plans.back().groups, 0U) << callee.method;
    specialized += callee.plans.back().tier == Tier::kRanks ? 1 : 0;
  }
  EXPECT_GE(specialized, 1U) << "facts change no node of the other method";
  module.method("forward").clear_cache();
  EXPECT_TRUE(module.method("forward").explain().callees.empty()) << "none ran since then";
}

TEST(Programs, TrainAsDifferentiableSubgraphs) {
  const Module module = load_model("interface_mixture", CompileMode::kBlocking);
  const at::Tensor x = at::rand({6, 8});
  const auto gradients_of = [&](const auto& model) {
    for (const at::Tensor& parameter : module.parameters()) {
      parameter.mutable_grad().reset();
    }
    model(x).toTensor().sum().backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : module.parameters()) {
      gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::zeros({0}));
    }
    return gradients;
  };
  torch::jit::Module script = module.script_module();
  const auto expected = gradients_of([&](const at::Tensor& input) { return script.forward({input}); });
  for (int call = 0; call < 3; ++call) {
    const auto found = gradients_of([&](const at::Tensor& input) { return module.forward({input}); });
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(testing::agree(found[i], expected[i], 1e-5)) << i;
    }
  }
  size_t subgraphs = 0;
  for (const Explanation& callee : module.method("forward").explain().callees) {
    for (const PlanExplanation& plan : callee.plans) {
      subgraphs += plan.gradients ? plan.gradients->subgraphs.size() : 0;
    }
  }
  EXPECT_GE(subgraphs, 2U);
}

TEST(Programs, ThePlansOfAMethodShareTheBodyOfAFork) {
  const Module module = load_model("forked_branches", CompileMode::kNever);
  const auto body_in = [](const Graph& graph) {
    return testing::find_node(graph, "prim::fork")->attribute_as<std::shared_ptr<Graph>>(attr::kSubgraph);
  };
  const Graph& graph = module.method("forward").graph();
  const auto copy = graph.clone();
  const auto callees = CalleeTable::make(Options());
  EXPECT_EQ(*callees->find(body_in(graph)), *callees->find(body_in(*copy)));
}

// A background compile must neither keep the module alive nor run without it.
TEST(Programs, MayBeUnloadedWhileTheirPlansCompile) {
  for (int i = 0; i < 20; ++i) {
    const Module module = load_model("interface_mixture", CompileMode::kBackground);
    const at::NoGradGuard no_grad;
    for (int call = 0; call < 3; ++call) {
      module.forward({at::rand({6, 8})});
    }
  }
}

TEST(Programs, AreNotTheLastGraphOfTheThread) {
  const Module module = load_model("interface_mixture", CompileMode::kNever);
  const at::NoGradGuard no_grad;
  module.forward({at::rand({6, 8})});
  const auto graph = last_executed_graph();
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(testing::count_nodes(*graph, "prim::CallMethod"), 4U);
}

}  // namespace
}  // namespace sconce
