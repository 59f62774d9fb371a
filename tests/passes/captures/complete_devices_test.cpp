// complete_devices. It has no name, so that it has no text file either.
#include "passes/captures/complete_devices.h"

#include "tests/support/graphs.h"

#include <ATen/core/jit_type.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

namespace sconce::testing {
namespace {

const c10::Device kGpu(at::kCUDA, 0);
const c10::Device kOtherGpu(at::kCUDA, 1);
const c10::Device kHost(at::kCPU);

// The devices of a graph's tensors, after the pass.
class Placed {
 public:
  explicit Placed(const std::string& text) : graph_(graph_of(text)) { complete_devices(*graph_, kGpu); }
  std::optional<c10::Device> operator[](const char* name) const {
    const TensorFacts* facts = find_value(*graph_, name)->facts();
    return facts != nullptr ? facts->device : std::nullopt;
  }

 private:
  std::unique_ptr<Graph> graph_;
};

TEST(CompleteDevices, OfInputsAreAssumedWhereFactsDoNotTell) {
  const Placed placed(R"(
graph(%x : Tensor, %host : Float(*, device=cpu), %sized : Float(2, 3)):
  %y : Tensor = aten::relu(%x)
  %h : Tensor = aten::relu(%host)
  return (%y, %h, %sized)
)");
  EXPECT_EQ(placed["x"], kGpu);
  EXPECT_EQ(placed["y"], kGpu);
  EXPECT_EQ(placed["sized"], kGpu);
  EXPECT_EQ(placed["host"], kHost);
  EXPECT_EQ(placed["h"], kHost);
}

TEST(CompleteDevices, KeepOtherFacts) {
  const auto graph = graph_of("graph(%x : Float(2, 3, requires_grad=0)):\n  return (%x)\n");
  TensorFacts expected = *graph->inputs()[0]->facts();
  expected.device = kGpu;
  complete_devices(*graph, kGpu);
  EXPECT_EQ(*graph->inputs()[0]->facts(), expected);
}

TEST(CompleteDevices, AreUnknownWhereOperandsLieApart) {
  const Placed placed(R"(
graph(%x : Tensor, %host : Float(*, device=cpu), %one : int):
  %both : Tensor = aten::add(%x, %host, %one)
  %after : Tensor = aten::relu(%both)
  return (%after)
)");
  EXPECT_EQ(placed["both"], std::nullopt);
  EXPECT_EQ(placed["after"], std::nullopt);
}

TEST(CompleteDevices, AreUnknownWhereTheOperatorNamesOne) {
  const Placed placed(R"(
graph(%x : Tensor, %device : Device, %maybe : Device?):
  %none : NoneType = prim::Constant()
  %no : bool = prim::Constant[value=0]()
  %float : int = prim::Constant[value=6]()
  %moved : Tensor = aten::to(%x, %device, %float, %no, %no, %none)
  %perhaps : Tensor = aten::zeros_like(%x, %float, %none, %maybe, %none, %none)
  %stays : Tensor = aten::zeros_like(%x, %float, %none, %none, %none, %none)
  %host : Tensor = aten::cpu(%x)
  return (%moved, %perhaps, %stays, %host)
)");
  EXPECT_EQ(placed["moved"], std::nullopt);
  EXPECT_EQ(placed["perhaps"], std::nullopt);
  EXPECT_EQ(placed["stays"], kGpu);
  EXPECT_EQ(placed["host"], std::nullopt);
}

TEST(CompleteDevices, OfListsAreThoseOfTheirElements) {
  const Placed placed(R"(
graph(%x : Tensor, %host : Float(*, device=cpu), %given : Tensor[], %zero : int):
  %list : Tensor[] = prim::ListConstruct(%host, %host)
  %joined : Tensor = aten::cat(%list, %zero)
  %mixed : Tensor[] = prim::ListConstruct(%x, %host)
  %apart : Tensor = aten::cat(%mixed, %zero)
  %parts : Tensor[] = aten::split(%host, %zero, %zero)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%parts)
  %taken : Tensor = aten::__getitem__(%given, %zero)
  return (%joined, %apart, %b, %taken)
)");
  EXPECT_EQ(placed["joined"], kHost);
  EXPECT_EQ(placed["apart"], std::nullopt);
  EXPECT_EQ(placed["b"], kHost);
  EXPECT_EQ(placed["taken"], kGpu) << "it comes from outside";
}

TEST(CompleteDevices, OfAttributesAreAssumed) {
  const Placed placed(R"(
graph(%self : __torch__.Layer, %host : Float(*, device=cpu)):
  %w : Tensor = prim::GetAttr[name="w"](%self)
  %r : Tensor = aten::relu(%w)
  return (%r)
)");
  EXPECT_EQ(placed["w"], kGpu);
  EXPECT_EQ(placed["r"], kGpu);
}

TEST(CompleteDevices, OfBranchesAreThoseOfBothBlocks) {
  const Placed placed(R"(
graph(%x : Tensor, %host : Float(*, device=cpu), %flag : bool):
  %same : Tensor, %differs : Tensor = prim::If(%flag)
    block0():
      %a : Tensor = aten::neg(%host)
      %b : Tensor = aten::neg(%x)
      -> (%a, %b)
    block1():
      -> (%host, %host)
  return (%same, %differs)
)");
  EXPECT_EQ(placed["a"], kHost);
  EXPECT_EQ(placed["b"], kGpu);
  EXPECT_EQ(placed["same"], kHost);
  EXPECT_EQ(placed["differs"], std::nullopt);
}

// %moving is on the host in the first trip and elsewhere in later ones, and so is what the loop computes of it.
TEST(CompleteDevices, OfLoopsAreThoseOfEveryTrip) {
  const Placed placed(R"(
graph(%x : Tensor, %host : Float(*, device=cpu), %n : int, %go : bool):
  %stayed : Tensor, %moved : Tensor, %follows : Tensor = prim::Loop(%n, %go, %host, %host, %host)
    block0(%i : int, %staying : Tensor, %moving : Tensor, %following : Tensor):
      %s : Tensor = aten::neg(%staying)
      %m : Tensor = aten::neg(%x)
      %f : Tensor = aten::neg(%moving)
      -> (%go, %s, %m, %f)
  return (%stayed, %moved, %follows)
)");
  EXPECT_EQ(placed["staying"], kHost);
  EXPECT_EQ(placed["s"], kHost);
  EXPECT_EQ(placed["stayed"], kHost);
  EXPECT_EQ(placed["m"], kGpu);
  for (const char* name : {"moving", "moved", "f", "following", "follows"}) {
    EXPECT_EQ(placed[name], std::nullopt) << name;
  }
}

TEST(CompleteDevices, OfConstantsAreTheirOwn) {
  const auto graph = graph_of("graph(%x : Tensor, %one : int):\n  %y : Tensor = aten::add(%x, %x, %one)\n  return (%y)\n");
  Node* add = find_node(*graph, "aten::add");
  Value* constant = graph->insert_constant(at::ones({2}), add, c10::TensorType::get());
  add->set_input(0, constant);
  add->set_input(1, constant);
  complete_devices(*graph, kOtherGpu);
  EXPECT_EQ(graph->inputs()[0]->facts()->device, kOtherGpu);
  EXPECT_EQ(add->output()->facts()->device, kHost);
}

}  // namespace
}  // namespace sconce::testing
