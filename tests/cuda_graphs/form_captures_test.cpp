#include "passes/captures/form_captures.h"

#include "tests/support/graphs.h"

#include <gtest/gtest.h>

namespace sconce::testing {
namespace {

// A kernel that no capture can hold, because it reads a number on the CPU, is left as it is.
TEST(FormCaptures, LeavesTheNodesOfAKernelTogether) {
  const auto graph = graph_of(R"(
graph(%x : Float(4, device=cuda:0), %n : Float(device=cpu)):
  %one : int = prim::Constant[value=1]()
  %y : Float(4, device=cuda:0) = sconce::kernel()
    block0():
      %a : Float(4, device=cuda:0) = aten::mul(%x, %x)
      %b : Float(4, device=cuda:0) = aten::tanh(%a)
      %c : Float(4, device=cuda:0) = aten::sigmoid(%b)
      %d : Float(4, device=cuda:0) = aten::add(%c, %n, %one)
      -> (%d)
  return (%y)
)");
  EXPECT_FALSE(form_captures(*graph)) << text_of(*graph);
  EXPECT_EQ(count_nodes(*graph, "sconce::captured"), 0U) << text_of(*graph);
}

}  // namespace
}  // namespace sconce::testing
