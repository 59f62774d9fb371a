#include "analysis/step_traits.h"

#include "tests/support/graphs.h"

#include <gtest/gtest.h>
#include <torch/library.h>

namespace sconce {
namespace {

using testing::find_node;
using testing::graph_of;

const c10::Device kCaptured(c10::kCUDA, 0);

StepTraits traits_in(const std::string& parameters, const std::string& node, const char* kind) {
  const auto graph = graph_of("graph(" + parameters + "):\n" + node + "\n  return (%y)\n");
  return traits_of(*find_node(*graph, kind), kCaptured);
}

TEST(StepTraits, OfPlainOperatorsAreNone) {
  const StepTraits traits =
      traits_in("%x : Float(2, 2, device=cuda:0)", "  %y : Float(2, 2, device=cuda:0) = aten::relu(%x)", "aten::relu");
  EXPECT_FALSE(traits.random || traits.writes || traits.reads_host);
  EXPECT_FALSE(traits.not_recordable);
}

TEST(StepTraits, KnowWritesAndRandomNumbers) {
  EXPECT_TRUE(traits_in("%x : Tensor", "  %y : Tensor = aten::relu_(%x)", "aten::relu_").writes);
  const StepTraits dropout = traits_in("%x : Float(2, device=cuda:0), %p : float, %t : bool",
                                       "  %y : Float(2, device=cuda:0) = aten::dropout(%x, %p, %t)", "aten::dropout");
  EXPECT_TRUE(dropout.random);
  EXPECT_FALSE(dropout.not_recordable) << "generators advance when a capture is replayed";
}

TEST(StepTraits, KnowWhatReadsElementsOnTheHost) {
  for (const auto& [line, kind] :
       std::vector<std::pair<std::string, const char*>>{{"  %y : Scalar = aten::item(%x)", "aten::item"},
                                                        {"  %y : bool = aten::Bool(%x)", "aten::Bool"},
                                                        {"  %y : bool = aten::equal(%x, %x)", "aten::equal"}}) {
    const StepTraits traits = traits_in("%x : Tensor", line, kind);
    EXPECT_TRUE(traits.reads_host) << line;
    EXPECT_EQ(traits.not_recordable, NotRecordable::kReadsHost) << line;
  }
  for (const auto& [line, kind] : std::vector<std::pair<std::string, const char*>>{
           {"  %y : int[] = aten::size(%x)", "aten::size"}, {"  %y : int = aten::dim(%x)", "aten::dim"}}) {
    const StepTraits traits = traits_in("%x : Tensor", line, kind);
    EXPECT_FALSE(traits.reads_host) << line;
    EXPECT_FALSE(traits.not_recordable) << line;
  }
}

TEST(StepTraits, NameWhatNoCaptureCanHold) {
  EXPECT_EQ(traits_in("%x : Tensor", "  %y : Tensor = aten::nonzero(%x)", "aten::nonzero").not_recordable,
            NotRecordable::kSizesByElements);
  EXPECT_EQ(traits_in("%x : Tensor", "  %y : Tensor = aten::t_(%x)", "aten::t_").not_recordable,
            NotRecordable::kChangesSizes);
  EXPECT_EQ(traits_in("%y : int", "  aten::manual_seed(%y)", "aten::manual_seed").not_recordable,
            NotRecordable::kHostEffects);
  EXPECT_EQ(traits_in("%x : Tensor, %c : bool",
                      "  %y : Tensor = prim::If(%c)\n    block0():\n      -> (%x)\n    block1():\n      -> (%x)", "prim::If")
                .not_recordable,
            std::nullopt)
      << "the host decides while it captures";
}

TEST(StepTraits, ACaptureHasOneDevice) {
  const auto why = [](const char* left, const char* right, const char* result, const char* op) {
    return traits_in(std::string("%a : ") + left + ", %b : " + right,
                     std::string("  %y : ") + result + " = aten::" + op + "(%a, %b)", (std::string("aten::") + op).c_str())
        .not_recordable;
  };
  const char* const first = "Float(2, 2, device=cuda:0)";
  const char* const second = "Float(2, 2, device=cuda:1)";
  const char* const host = "Float(2, 2, device=cpu)";
  EXPECT_EQ(why(first, first, first, "mm"), std::nullopt);
  EXPECT_EQ(why(second, second, second, "mm"), NotRecordable::kOtherDevice);
  EXPECT_EQ(why(host, host, host, "mm"), NotRecordable::kOtherDevice);
  EXPECT_EQ(why(first, second, first, "mm"), NotRecordable::kSeveralDevices);
  EXPECT_EQ(why(first, "Float(device=cpu)", first, "mul"), NotRecordable::kSeveralDevices);
  EXPECT_EQ(why(first, "Tensor", first, "mm"), NotRecordable::kUnknownDevice);
  EXPECT_EQ(why(first, first, "Tensor", "mm"), NotRecordable::kUnknownDevice);
  EXPECT_EQ(why("Float(2, 2, device=cuda)", first, first, "mm"), NotRecordable::kUnknownDevice) << "the current device";
}

TEST(StepTraits, CopiesToTheHostAndFromItAreNotRecordable) {
  const std::string to =
      "  %cpu : Device = prim::Constant[value=\"cpu\"]()\n  %f : int = prim::Constant[value=6]()\n"
      "  %no : bool = prim::Constant[value=0]()\n  %none : NoneType = prim::Constant()\n"
      "  %y : Float(2, device=cpu) = aten::to(%x, %cpu, %f, %no, %no, %none)";
  EXPECT_EQ(traits_in("%x : Float(2, device=cuda:0)", to, "aten::to").not_recordable, NotRecordable::kSeveralDevices);
  const std::string made =
      "  %gpu : Device = prim::Constant[value=\"cuda:0\"]()\n  %f : int = prim::Constant[value=6]()\n"
      "  %no : bool = prim::Constant[value=0]()\n"
      "  %y : Float(device=cuda:0) = aten::tensor(%x, %f, %gpu, %no)";
  EXPECT_EQ(traits_in("%x : float", made, "aten::tensor").not_recordable, NotRecordable::kSeveralDevices);
}

TEST(StepTraits, KnowTheDevicesOfListsThatAreMadeForTheNode) {
  const auto why = [](const char* second) {
    return traits_in(std::string("%a : Float(2, device=cuda:0), %b : ") + second + ", %d : int",
                     "  %l : Tensor[] = prim::ListConstruct(%a, %b)\n  %y : Float(4, device=cuda:0) = aten::cat(%l, %d)",
                     "aten::cat")
        .not_recordable;
  };
  EXPECT_EQ(why("Float(2, device=cuda:0)"), std::nullopt);
  EXPECT_EQ(why("Float(2, device=cpu)"), NotRecordable::kSeveralDevices);
  EXPECT_EQ(why("Tensor"), NotRecordable::kUnknownDevice);
  EXPECT_EQ(
      traits_in("%l : Tensor[], %d : int", "  %y : Float(4, device=cuda:0) = aten::cat(%l, %d)", "aten::cat").not_recordable,
      NotRecordable::kUnknownDevice);
  EXPECT_EQ(traits_in("%x : Float(4, device=cuda:0), %n : int, %d : int", "  %y : Tensor[] = aten::chunk(%x, %n, %d)",
                      "aten::chunk")
                .not_recordable,
            std::nullopt);
}

TEST(StepTraits, DifferentiableSubgraphsRunPlansOfTheirOwn) {
  const auto graph = graph_of(
      "graph(%x : Float(2, device=cuda:0)):\n"
      "  %y : Float(2, device=cuda:0) = sconce::differentiable(%x)\n"
      "    block0(%a : Float(2, device=cuda:0)):\n"
      "      %r : Float(2, device=cuda:0) = aten::relu(%a)\n"
      "      -> (%r)\n"
      "  return (%y)\n");
  EXPECT_EQ(traits_of(*find_node(*graph, "sconce::differentiable"), kCaptured).not_recordable, NotRecordable::kRunsCode);
}

TEST(StepTraits, KnowWhatIsMarkedAsUnfit) {
  torch::Library library(torch::Library::FRAGMENT, "step_traits_test", std::nullopt, __FILE__, __LINE__);
  library.def("fit(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});
  library.def("unfit(Tensor x) -> Tensor", {at::Tag::cudagraph_unsafe});
  const auto why = [](const char* op) {
    return traits_in("%x : Float(2, device=cuda:0)", std::string("  %y : Float(2, device=cuda:0) = ") + op + "(%x)", op)
        .not_recordable;
  };
  EXPECT_EQ(why("step_traits_test::fit"), std::nullopt);
  EXPECT_EQ(why("step_traits_test::unfit"), NotRecordable::kForbidden);
}

}  // namespace
}  // namespace sconce
