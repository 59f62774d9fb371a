#include "analysis/step_traits.h"

#include "tests/support/graphs.h"

#include <gtest/gtest.h>

namespace sconce {
namespace {

using testing::find_node;
using testing::graph_of;

StepTraits traits_in(const std::string& parameters, const std::string& node, const char* kind) {
  const auto graph = graph_of("graph(" + parameters + "):\n" + node + "\n  return (%y)\n");
  return traits_of(*find_node(*graph, kind));
}

TEST(StepTraits, OfPlainOperatorsAreNone) {
  const StepTraits traits = traits_in("%x : Float(2, 2, device=cpu)", "  %y : Tensor = aten::relu(%x)", "aten::relu");
  EXPECT_FALSE(traits.random || traits.writes || traits.reads_host);
  EXPECT_FALSE(traits.not_recordable);
  EXPECT_EQ(traits.device, c10::Device(c10::kCPU));
}

TEST(StepTraits, KnowWritesAndRandomNumbers) {
  EXPECT_TRUE(traits_in("%x : Tensor", "  %y : Tensor = aten::relu_(%x)", "aten::relu_").writes);
  const StepTraits dropout =
      traits_in("%x : Tensor, %p : float, %t : bool", "  %y : Tensor = aten::dropout(%x, %p, %t)", "aten::dropout");
  EXPECT_TRUE(dropout.random);
  EXPECT_FALSE(dropout.not_recordable) << "generators advance when a recording is replayed";
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

TEST(StepTraits, NameWhatNoRecordingCanHold) {
  EXPECT_EQ(traits_in("%x : Tensor", "  %y : Tensor = aten::nonzero(%x)", "aten::nonzero").not_recordable,
            NotRecordable::kSizesByElements);
  EXPECT_EQ(traits_in("%y : int", "  aten::manual_seed(%y)", "aten::manual_seed").not_recordable,
            NotRecordable::kHostEffects);
  EXPECT_EQ(traits_in("%x : Tensor, %c : bool",
                      "  %y : Tensor = prim::If(%c)\n    block0():\n      -> (%x)\n    block1():\n      -> (%x)", "prim::If")
                .not_recordable,
            NotRecordable::kBranches);
}

}  // namespace
}  // namespace sconce
