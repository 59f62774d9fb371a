#include "passes/required/inline_calls.h"

#include "tests/support/graphs.h"

#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "passes/simplify/peephole.h"
#include "passes/simplify/propagate_constants.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

namespace sconce {
namespace {

using testing::agree;
using testing::count_nodes;
using testing::find_node;
using ::testing::HasSubstr;

// The method's graph with its calls inlined; the module must outlive it.
std::unique_ptr<Graph> inlined(const torch::jit::Module& module, const std::string& method) {
  FunctionTable functions;
  const auto source = functions.graph_of(module.get_method(method).function());
  EXPECT_TRUE(source);
  auto graph = (*source)->clone();
  const auto changed = inline_calls(*graph, functions);
  EXPECT_TRUE(changed) << to_string(changed.refusal());
  for (const Violation& violation : find_violations(*graph)) {
    ADD_FAILURE() << violation.check << ": " << violation.message;
  }
  EXPECT_EQ(count_nodes(*graph, "prim::CallMethod") + count_nodes(*graph, "prim::CallFunction"), 0);
  return graph;
}

TEST(InlineCalls, LeavesAGraphWithoutCallsUnchanged) {
  auto graph = testing::graph_of("graph(%a : Tensor):\n  %b : Tensor = aten::neg(%a)\n  return (%b)\n");
  const std::string before = print(*graph);
  FunctionTable functions;
  const auto changed = inline_calls(*graph, functions);
  ASSERT_TRUE(changed);
  EXPECT_FALSE(*changed);
  EXPECT_EQ(print(*graph), before);
}

TEST(InlineCalls, ReplacesNestedCallsAlsoInBlocksAndCallsOfOneCalleeTwice) {
  auto module = testing::module_of(R"(
def forward(self, x, n: int):
    for i in range(n):
        if i % 2 == 0:
            x = self.outer(x, i)
        else:
            x = self.inner(x)
    return self.inner(self.outer(x, n))

def outer(self, x, n: int):
    return self.inner(x) * n + self.w

def inner(self, x):
    return torch.relu(x) - 1
)",
                                   {{"w", at::full({2}, 0.5)}});
  const auto graph = inlined(module, "forward");
  EXPECT_EQ(count_nodes(*graph, "aten::relu"), 4) << "one in each of four places";
  const at::Tensor x = at::rand({2});
  for (int64_t n = 0; n < 4; ++n) {
    EXPECT_TRUE(agree(testing::run(*graph, {module._ivalue(), x, n}).at(0), module.forward({x, n})));
  }
}

TEST(InlineCalls, PassesSubmodulesAndSeveralResultsThrough) {
  auto inner = testing::module_of("def forward(self, x) -> Tuple[Tensor, int]:\n    return x * self.w, 3\n",
                                  {{"w", at::full({2}, 5.0)}});
  torch::jit::Module outer("Outer");
  outer.register_module("inner", inner);
  outer.define("def forward(self, x):\n    y, n = self.inner.forward(x)\n    return y + n\n");
  const auto graph = inlined(outer, "forward");
  EXPECT_TRUE(agree(testing::run(*graph, {outer._ivalue(), at::ones({2})}).at(0), at::full({2}, 8.0)));
}

TEST(InlineCalls, KeepsTheChainOfCallSites) {
  auto module = testing::module_of(R"(
def forward(self, x):
    return self.middle(x)

def middle(self, x):
    y = self.innermost(x)
    return y

def innermost(self, x):
    return torch.tanh(x)
)");
  const auto graph = inlined(module, "forward");
  const Node& tanh = *find_node(*graph, "aten::tanh");
  std::vector<std::string> functions;
  size_t places = 0;
  for (const SourceLocation* place = tanh.location().get(); place != nullptr; place = place->caller().get()) {
    functions.push_back(place->function());
    ++places;
  }
  EXPECT_EQ(places, 3) << "tanh, the call in middle, the call in forward";
  EXPECT_THAT(functions.at(0), HasSubstr("innermost"));
  EXPECT_THAT(functions.at(1), HasSubstr("middle"));
  EXPECT_THAT(tanh.location()->excerpt(), HasSubstr("torch.tanh(x)"));
  EXPECT_THAT(tanh.location()->caller()->excerpt(), HasSubstr("self.innermost(x)"));
  EXPECT_THAT(tanh.location()->caller()->caller()->excerpt(), HasSubstr("self.middle(x)"));
}

TEST(InlineCalls, AnErrorInACalleeShowsEveryCallSite) {
  auto module = testing::module_of(R"(
def forward(self, x, y):
    return self.product(x, y)

def product(self, x, y):
    return torch.mm(x, y)
)");
  const auto graph = inlined(module, "forward");
  const std::string message =
      testing::message_of([&] { testing::run(*graph, {module._ivalue(), at::ones({2, 3}), at::ones({2, 3})}); });
  EXPECT_THAT(message, HasSubstr("aten::mm"));
  EXPECT_THAT(message, HasSubstr("return torch.mm(x, y)")) << "the model's line";
}

const char* const kSeveralCalls = R"(
def forward(self, x):
    return self.once(self.shared(x, None)) + self.shared(x, x) + self.shared(x, None)

def once(self, x):
    return self.shared(x.exp(), x)

def shared(self, x, y: Optional[Tensor]):
    sizes = [2, 3]
    if len(sizes) == 2:
        z = self.deepest(x)
    else:
        z = x
    return z if y is None else z * y

def deepest(self, x):
    return x.relu() - 1
)";

TEST(InlineCalls, SimplifiesAFunctionOfSeveralCallsOnceBeforeItIsCopied) {
  auto module = testing::module_of(kSeveralCalls);
  FunctionTable functions;
  auto graph = (*functions.graph_of(module.get_method("forward").function()))->clone();
  size_t simplified = 0;
  const auto changed = inline_calls(*graph, functions, [&](Graph& body) {
    ++simplified;
    EXPECT_EQ(count_nodes(body, "prim::CallMethod"), 0) << "its own calls come first";
    EXPECT_TRUE(peephole(body));
    EXPECT_TRUE(propagate_constants(body));
  });
  ASSERT_TRUE(changed);
  EXPECT_EQ(simplified, 1U) << "of `shared` alone: each other function is called in one place";
  EXPECT_TRUE(find_violations(*graph).empty());
  EXPECT_EQ(count_nodes(*graph, "aten::eq"), 0) << "decided in the shared body";
  EXPECT_EQ(count_nodes(*graph, "aten::relu"), 4);
  const at::Tensor x = at::rand({3});
  EXPECT_TRUE(agree(testing::run(*graph, {module._ivalue(), x}).at(0), module.forward({x})));
  const std::string chain = describe_call_chain(find_node(*graph, "aten::relu")->location());
  EXPECT_EQ(std::count(chain.begin(), chain.end(), '\n'), 2) << "relu, the calls in shared and forward\n" << chain;
}

TEST(InlineCalls, SimplifiesNoPartOfAProgramThatAsksWhichTupleAnObjectIs) {
  auto module = testing::module_of(R"(
def forward(self, x):
    a = self.pair(x)
    return a is self.pair(x), a is a

def pair(self, x):
    return (x.dim(), 2)
)");
  FunctionTable functions;
  auto graph = (*functions.graph_of(module.get_method("forward").function()))->clone();
  ASSERT_TRUE(inline_calls(*graph, functions, [](Graph&) { ADD_FAILURE() << "both calls would give one tuple"; }));
  EXPECT_EQ(count_nodes(*graph, "prim::TupleConstruct"), 3);
}

// The suite's model with an interface (TorchScript's C++ frontend declares none).
TEST(InlineCalls, LeavesMethodsOfInterfacesAsCalls) {
  const torch::jit::Module module = torch::jit::load(testing::models_dir() + "/interface_dispatch.pt");
  FunctionTable functions;
  const auto source = functions.graph_of(module.get_method("forward").function());
  ASSERT_TRUE(source);
  auto graph = (*source)->clone();
  ASSERT_TRUE(inline_calls(*graph, functions));
  size_t calls = 0;
  for_each_node(graph->body(), [&](Node* node) {
    if (node->kind() == prim::CallMethod) {
      ++calls;
      EXPECT_EQ(node->input(0)->type()->kind(), c10::TypeKind::InterfaceType) << "what can be inlined is";
    }
  });
  EXPECT_GT(calls, 0U);
}

TEST(InlineCalls, InlinesARecursiveFunctionOnceAndLeavesItsCallOfItself) {
  // TorchScript's frontend lets a function recurse only through an interface; a graph can.
  auto module = testing::module_of(
      "def forward(self, x):\n    return self.other(x)\n\ndef other(self, x):\n    return torch.neg(x)\n");
  FunctionTable functions;
  const auto other = functions.graph_of(module.get_method("other").function());
  ASSERT_TRUE(other);
  Graph& body = const_cast<Graph&>(**other);
  Node* neg = find_node(body, "aten::neg");
  Node* call = body.create(prim::CallMethod, {body.inputs()[0], neg->output()}, 1);
  call->set_attribute(attr::kName, std::string("other"));
  call->insert_after(neg);
  body.body().set_return(0, call->output());
  const auto source = functions.graph_of(module.get_method("forward").function());
  auto graph = (*source)->clone();
  const auto changed = inline_calls(*graph, functions);
  ASSERT_TRUE(changed);
  EXPECT_TRUE(*changed);
  EXPECT_EQ(count_nodes(*graph, "aten::neg"), 1);
  EXPECT_EQ(count_nodes(*graph, "prim::CallMethod"), 1);
}

}  // namespace
}  // namespace sconce
