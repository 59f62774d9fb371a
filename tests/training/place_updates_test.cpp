// Updates stand as early as they may in the graph of a step.
#include "training/step/place_updates.h"

#include "ir/text/parse.h"
#include "ir/verify/verify.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <string>

namespace sconce {
namespace {

// Places the update of %w in a graph of these nodes, which compute its gradient %g. Returns the kinds of the nodes before
// the update, without constants.
std::string nodes_before_update(const std::string& nodes, const std::string& gradient = "%g") {
  const auto graph = parse("graph(%x : Tensor, %w : Tensor, %i : Tensor, %a : float, %b : float, %c : float):\n" +
                           std::string("  %zero : int = prim::Constant[value=0]()\n") + nodes +
                           "  %l : Tensor = aten::mul(%g, %g)\n  return (%l, " + gradient + ")\n");
  const torch::optim::SGD sgd({at::ones({2, 2})}, torch::optim::SGDOptions(0.1));
  StepUpdates updates;
  updates.rule = find_update_rule(sgd);
  updates.groups = {{updates.rule->variant(sgd.defaults()), /*first_number=*/3}};
  updates.parameters = {{.group = 0, .param = 1, .gradient = 1, .first_state = 3, .first_step_number = 3}};
  PassRunner runner;
  place_updates(*graph, updates, /*has_kernels=*/false, /*is_exact=*/false, /*gathered_bytes=*/0, runner);
  verify(*graph, "place_updates");
  EXPECT_EQ(graph->outputs().size(), 1U);
  std::string before;
  for (const Node* node : graph->body().nodes()) {
    if (node->opcode() != Opcode::kConstant) {
      if (node->op().is_marked_as_written(0) && node->input(0) == graph->inputs()[1]) {
        return before;
      }
      before += std::string(before.empty() ? "" : " ") + node->kind().toUnqualString();
    }
  }
  ADD_FAILURE() << "there is no update";
  return before;
}

TEST(PlaceUpdates, StandAfterTheGradient) {
  EXPECT_EQ(nodes_before_update(R"(
  %g : Tensor = aten::mm(%x, %x)
  %h : Tensor = aten::mm(%g, %x)
)"),
            "mm");
}

TEST(PlaceUpdates, StandAfterWhatReadsTheParameterOrAViewOfIt) {
  EXPECT_EQ(nodes_before_update(R"(
  %t : Tensor = aten::t(%w)
  %g : Tensor = aten::mm(%x, %x)
  %h : Tensor = aten::mm(%g, %t)
)"),
            "t mm mm");
}

TEST(PlaceUpdates, StandAfterWhatWritesTheGradient) {
  EXPECT_EQ(nodes_before_update(R"(
  %one : int = prim::Constant[value=1]()
  %g : Tensor = aten::mm(%x, %x)
  %h : Tensor = aten::mm(%g, %x)
  %v : Tensor = aten::t(%g)
  %s : Tensor = aten::add_(%v, %h, %one)
)"),
            "mm mm t add_");
}

// An index may be out of range.
TEST(PlaceUpdates, StandAfterWhatMayRaiseBecauseOfElements) {
  EXPECT_EQ(nodes_before_update(R"(
  %g : Tensor = aten::mm(%x, %x)
  %h : Tensor = aten::index_select(%g, %zero, %i)
  %k : Tensor = aten::mm(%h, %x)
)"),
            "mm index_select");
}

TEST(PlaceUpdates, StandAtTheEndIfTheParameterIsReturned) {
  EXPECT_EQ(nodes_before_update("  %g : Tensor = aten::mm(%x, %x)\n", "%w"), "mm mul");
}

}  // namespace
}  // namespace sconce
