#include "passes/freeze/freeze.h"

#include "tests/support/graphs.h"

#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "passes/required/inline_calls.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/passes/freeze_module.h>

namespace sconce {
namespace {

using testing::count_nodes;
using ::testing::ElementsAre;
using testing::find_node;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::module_of;

using Attributes = std::vector<std::pair<std::string, c10::IValue>>;
using Names = std::vector<std::string>;

// A method of a module, frozen.
struct FrozenMethod {
  explicit FrozenMethod(const torch::jit::Module& of, const Names& preserved = {}, const std::string& method = "forward")
      : module(of), found(ModuleConstants::find(module._ivalue(), preserved, functions)) {
    if (!found) {
      refusal = to_string(found.refusal());
      return;
    }
    graph = (*functions.graph_of(module.get_method(method).function()))->clone();
    EXPECT_TRUE(inline_calls(*graph, functions));
    const std::string before = print(*graph);
    changed = freeze(*graph, *found);
    EXPECT_EQ(changed, print(*graph) != before);
    for (const Violation& violation : find_violations(*graph)) {
      ADD_FAILURE() << violation.check << ": " << violation.message << "\n" << print(*graph);
    }
    const std::string once = print(*graph);
    EXPECT_FALSE(freeze(*graph, *found));
    EXPECT_EQ(print(*graph), once);
  }

  size_t reads() const { return count_nodes(*graph, "prim::GetAttr"); }

  // "NAME: reason", one for each that stays.
  Names stays() const {
    Names lines;
    for (const RefusalExplanation& each : attributes_not_frozen(*graph, *found)) {
      lines.push_back(each.what + ": " + each.reason);
    }
    return lines;
  }

  torch::jit::Module module;
  FunctionTable functions;
  Expected<ModuleConstants> found;
  std::string refusal;
  std::unique_ptr<Graph> graph;
  bool changed = false;
};

torch::jit::Module nested(const std::string& methods, const std::vector<std::pair<std::string, torch::jit::Module>>& modules,
                          const Attributes& attributes = {}) {
  torch::jit::Module outer("Outer");
  for (const auto& [name, module] : modules) {
    outer.register_module(name, module);
  }
  for (const auto& [name, value] : attributes) {
    if (value.isTensor()) {
      outer.register_buffer(name, value.toTensor());
    } else {
      outer.register_attribute(name, value.type(), value);
    }
  }
  outer.define(methods);
  return outer;
}

const char* const kAddsW = "def forward(self, x):\n    return x + self.w\n";
const char* const kWritten = "a method may write it in place";
const char* const kReturned = "a method returns it or a view of it, and the caller could write that";

// ---- what becomes a constant ----------------------------------------------------------------------------------------

TEST(Freeze, LeavesAMethodThatReadsNothingUnchanged) {
  EXPECT_FALSE(FrozenMethod(module_of("def forward(self, x):\n    return torch.neg(x)\n")).changed);
}

TEST(Freeze, MakesConstantsOfTensorsNumbersTextsAndListsInSubmodulesToo) {
  const torch::jit::Module inner =
      module_of(R"(
def forward(self, x):
    if self.name == "tanh":
        x = torch.tanh(x)
    return (x * self.w).reshape(self.sizes) * self.factor
)",
                {{"w", at::ones({4})}, {"name", "tanh"}, {"sizes", c10::List<int64_t>({2, -1})}, {"factor", 2.5}});
  const torch::jit::Module outer = nested("def forward(self, x):\n    return self.inner.forward(x) + self.bias\n",
                                          {{"inner", inner}}, {{"bias", at::zeros({2})}});
  const FrozenMethod method(outer);
  EXPECT_TRUE(method.changed);
  EXPECT_EQ(method.reads(), 0) << print(*method.graph);
  EXPECT_THAT(method.stays(), IsEmpty());
}

TEST(Freeze, MakesOptionalsNoneOrWhatTheyHold) {
  torch::jit::Module module("M");
  module.register_attribute("absent", c10::OptionalType::ofTensor(), c10::IValue());
  module.register_attribute("present", c10::OptionalType::ofTensor(), at::ones({2}));
  module.define(R"(
def forward(self, x):
    absent = self.absent
    if absent is not None:
        x = x + absent
    present = self.present
    if present is not None:
        x = x + present
    return x
)");
  const FrozenMethod method(module);
  EXPECT_EQ(method.reads(), 0) << print(*method.graph);
}

std::vector<at::Tensor> tensor_constants(const Graph& graph) {
  std::vector<at::Tensor> constants;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() == prim::Constant && node->output()->constant() && node->output()->constant()->isTensor()) {
      constants.push_back(node->output()->constant()->toTensor());
    }
  });
  return constants;
}

TEST(Freeze, ConstantsTakeNoGradientAndShareTheMemory) {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  const FrozenMethod method(module_of(kAddsW, {{"w", weight}}));
  const auto constants = tensor_constants(*method.graph);
  ASSERT_EQ(constants.size(), 1);
  EXPECT_FALSE(constants[0].requires_grad());
  EXPECT_EQ(constants[0].data_ptr(), weight.data_ptr());
  EXPECT_FALSE(constants[0].is_same(weight)) << "set_data() of the parameter would change it";
}

TEST(Freeze, OneTensorUnderTwoNamesIsOneConstant) {
  const at::Tensor tied = at::ones({2, 2});
  const FrozenMethod method(
      module_of("def forward(self, x):\n    return (x @ self.a) @ self.b.t()\n", {{"a", tied}, {"b", tied}}));
  const auto constants = tensor_constants(*method.graph);
  ASSERT_EQ(constants.size(), 2);
  EXPECT_TRUE(constants[0].is_same(constants[1]));
}

// ---- what is written ------------------------------------------------------------------------------------------------

TEST(Freeze, LeavesWhatSomeMethodAssigns) {
  const FrozenMethod method(module_of(std::string(kAddsW) + R"(
def update(self, x):
    self.w = x
def bump(self):
    self.n += 1
def times(self) -> int:
    return self.n
)",
                                      {{"w", at::ones({2})}, {"n", 1}}));
  EXPECT_EQ(method.reads(), 1);
  EXPECT_THAT(method.stays(), ElementsAre("constant w: a method assigns it"));
  const RefusalExplanation refusal = attributes_not_frozen(*method.graph, *method.found).front();
  EXPECT_THAT(refusal.node, HasSubstr("prim::SetAttr[name=\"w\"]"));
}

TEST(Freeze, LeavesWhatSomeMethodWritesInPlaceAlsoThroughAView) {
  const FrozenMethod method(module_of(std::string(kAddsW) + R"(
def update(self, x):
    self.w[0].mul_(2)
)",
                                      {{"w", at::ones({2})}, {"training", false}}));
  EXPECT_THAT(method.stays(), ElementsAre("constant w: " + std::string(kWritten)));
}

TEST(Freeze, WritesOfTheArgumentsAndOfNewTensorsDoNotMatter) {
  const FrozenMethod method(module_of(R"(
def forward(self, x):
    x.add_(1)
    y = x * self.w
    y.mul_(self.w)
    return y
)",
                                      {{"w", at::ones({2})}}));
  EXPECT_EQ(method.reads(), 0);
}

const char* const kNormModule = R"(
def forward(self, x):
    if self.training:
        self.seen.add_(1)
    return torch.batch_norm(x, None, None, self.mean, self.var, self.training, 0.1, 1e-5, True)
)";
const Attributes kStatistics = {
    {"mean", at::zeros({2})}, {"var", at::ones({2})}, {"seen", at::zeros({}, at::kLong)}, {"training", false}};

TEST(Freeze, WhatABranchOnAConstantRulesOutIsNotWritten) {
  const FrozenMethod method(module_of(kNormModule, kStatistics));
  EXPECT_EQ(method.reads(), 0) << print(*method.graph);
}

TEST(Freeze, RunningStatisticsAreWrittenWhereTheNormMayTrain) {
  const FrozenMethod method(module_of(kNormModule, kStatistics), {"training"});
  EXPECT_THAT(method.stays(),
              ElementsAre("constant seen: " + std::string(kWritten), "constant mean, var: " + std::string(kWritten)));
}

TEST(Freeze, InstanceNormWritesItsStatisticsWhereItMakesThem) {
  for (const bool makes : {true, false}) {
    const FrozenMethod method(module_of(R"(
def forward(self, x):
    return torch.instance_norm(x, None, None, self.mean, self.var, )" +
                                            std::string(makes ? "True" : "False") + ", 0.1, 1e-5, True)\n",
                                        kStatistics));
    EXPECT_EQ(method.reads(), makes ? 2 : 0);
  }
}

TEST(Freeze, LeavesListsThatGrow) {
  const FrozenMethod method(module_of(R"(
def forward(self, x):
    return x.reshape(self.sizes)
def grow(self):
    self.sizes.append(1)
)",
                                      {{"sizes", c10::List<int64_t>({2})}}));
  EXPECT_THAT(method.stays(), ElementsAre("constant sizes: " + std::string(kWritten)));
}

// ---- what others may hold -------------------------------------------------------------------------------------------

TEST(Freeze, LeavesWhatIsReturnedAlsoAsAView) {
  for (const char* result : {"self.w", "self.w.t()", "(x, self.w)"}) {
    const FrozenMethod method(
        module_of(std::string("def forward(self, x):\n    return ") + result + "\n", {{"w", at::ones({2, 2})}}));
    EXPECT_EQ(method.reads(), 1) << result;
  }
  const FrozenMethod method(module_of("def forward(self, x):\n    return self.w\n", {{"w", at::ones({2})}}));
  EXPECT_THAT(method.stays(), ElementsAre("constant w: " + std::string(kReturned)));
}

TEST(Freeze, LeavesWhatIsAskedForItsIdentityOrKept) {
  const FrozenMethod identity(module_of("def forward(self, x):\n    return self.w is x\n", {{"w", at::ones({2})}}));
  EXPECT_EQ(identity.reads(), 1);
  const FrozenMethod kept(module_of(std::string(kAddsW) + R"(
def keep(self):
    self.other = self.w
)",
                                    {{"w", at::ones({2})}, {"other", at::zeros({2})}}));
  EXPECT_THAT(kept.stays(), ElementsAre("constant w: it goes where it cannot be followed"));
}

TEST(Freeze, LeavesWhatSharesMemoryWithWhatIsWritten) {
  const at::Tensor all = at::ones({4});
  const FrozenMethod method(module_of(std::string(kAddsW) + R"(
def update(self):
    self.all.zero_()
)",
                                      {{"w", all.slice(0, 0, 2)}, {"all", all}}));
  EXPECT_THAT(method.stays(), ElementsAre("constant w: it shares memory with all, which is no constant"));
}

TEST(Freeze, LeavesListsOfTensorsAndWhatIsInThem) {
  const at::Tensor w = at::ones({2});
  const FrozenMethod method(module_of(R"(
def forward(self, x):
    return x + self.w + self.list[0]
)",
                                      {{"w", w}, {"list", c10::List<at::Tensor>({w})}}));
  EXPECT_THAT(method.stays(), ElementsAre("constant w: it shares memory with list, which is no constant",
                                          "constant list: no constant can hold a value of type List[Tensor]"));
}

TEST(Freeze, LeavesTensorsThatAreNotOrdinary) {
  const FrozenMethod method(
      module_of("def forward(self, x):\n    return torch.mm(self.w, x)\n", {{"w", at::eye(2).to_sparse()}}));
  EXPECT_THAT(method.stays(), ElementsAre("constant w: it is no ordinary dense tensor"));
}

// ---- what the user asks for -----------------------------------------------------------------------------------------

TEST(Freeze, KeepsWhatIsToBePreservedAndSaysNothingOfIt) {
  const torch::jit::Module inner = module_of(kAddsW, {{"w", at::ones({2})}});
  const torch::jit::Module outer = nested("def forward(self, x):\n    return self.inner.forward(x) + self.w + self.v\n",
                                          {{"inner", inner}}, {{"w", at::zeros({2})}, {"v", at::zeros({2})}});
  EXPECT_EQ(FrozenMethod(outer).reads(), 0);
  EXPECT_EQ(FrozenMethod(outer, {"inner.w"}).reads(), 2);
  EXPECT_EQ(FrozenMethod(outer, {"inner", "v"}).reads(), 3);
  EXPECT_EQ(FrozenMethod(outer, {"forward"}).reads(), 0) << "methods stay anyway";
  EXPECT_THAT(FrozenMethod(outer, {"inner", "v"}).stays(), IsEmpty());
  EXPECT_THAT(FrozenMethod(outer, {"inner.weight"}).refusal, HasSubstr("there is no 'inner.weight' to preserve"));
}

TEST(Freeze, RefusesAModuleInTrainingMode) {
  EXPECT_THAT(FrozenMethod(module_of(kAddsW, {{"w", at::ones({2})}, {"training", true}})).refusal, HasSubstr("call eval()"));
}

// ---- beside LibTorch's ----------------------------------------------------------------------------------------------

// LibTorch looks at the methods that it keeps alone; where nothing is written, as much must be constant here.
TEST(Freeze, LeavesNoReadsThatLibTorchsFreezingDoesNot) {
  const torch::jit::Module inner = module_of(kNormModule, kStatistics);
  const torch::jit::Module outer =
      nested(R"(
def forward(self, x):
    y = self.norm.forward(torch.conv2d(x, self.w))
    if self.scale is not None:
        y = y * self.scale
    return y.flatten(self.first)
)",
             {{"norm", inner}}, {{"w", at::ones({2, 1, 1, 1})}, {"scale", 2.0}, {"first", 1}, {"training", false}});
  const torch::jit::Module theirs = torch::jit::freeze_module(outer);
  size_t their_reads = 0;
  for (const torch::jit::Node* node : theirs.get_method("forward").graph()->nodes()) {
    their_reads += node->kind() == prim::GetAttr ? 1 : 0;
  }
  EXPECT_EQ(their_reads, 0);
  EXPECT_EQ(FrozenMethod(outer).reads(), their_reads);
}

}  // namespace
}  // namespace sconce
