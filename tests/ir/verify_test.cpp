// One violation, built by hand, for every check of the verifier.
#include "ir/verify/verify.h"

#include "tests/support/graphs.h"

#include "ir/kernel_node.h"
#include "ir/schema_match.h"
#include "ir/text/parse.h"

#include <ATen/core/jit_type.h>
#include <gmock/gmock.h>

#include <map>

namespace sconce {
namespace {

using testing::find_node;
using testing::find_value;

// A graph that breaks the rule; what keeps foreign parts alive is put into `others`.
struct Broken {
  std::unique_ptr<Graph> graph;
  std::vector<std::shared_ptr<Graph>> others;
};

const char* const kSmall =
    "graph(%a : Tensor, %flag : bool, %n : int):\n"
    "  %x : Tensor = aten::relu(%a)\n"
    "  %y : Tensor = aten::neg(%x)\n"
    "  %r : Tensor = prim::If(%flag)\n"
    "    block0():\n"
    "      %z : Tensor = aten::tanh(%y)\n"
    "      -> (%z)\n"
    "    block1():\n"
    "      -> (%y)\n"
    "  %l : Tensor = prim::Loop(%n, %flag, %r)\n"
    "    block0(%i : int, %v : Tensor):\n"
    "      -> (%flag, %v)\n"
    "  return (%l)\n";

std::map<std::string, std::function<Broken()>> violations_by_check() {
  const auto small = [](const std::function<void(Graph&)>& breakage) {
    return [breakage] {
      Broken broken{parse(kSmall), {}};
      breakage(*broken.graph);
      return broken;
    };
  };
  return {
      {"everything_belongs_to_the_graph",
       [] {
         Broken broken{parse(kSmall), {}};
         std::shared_ptr<Graph> other = parse("graph(%foreign : Tensor):\n  return ()\n");
         find_node(*broken.graph, "aten::relu")->set_input(0, other->inputs()[0]);
         broken.others.push_back(other);
         return broken;
       }},
      {"inputs_are_defined_before", small([](Graph& graph) {
         Node* neg = find_node(graph, "aten::neg");
         neg->detach();
         neg->insert_before(find_node(graph, "aten::relu"));
       })},
      {"if_has_two_matching_branches",
       small([](Graph& graph) { find_node(graph, "prim::If")->block(1)->remove_return(0); })},
      {"loop_carries_the_same_values",
       small([](Graph& graph) { find_node(graph, "prim::Loop")->block(0)->remove_return(1); })},
      {"kernel_returns_what_it_computes",
       small([](Graph& graph) { make_kernel_node({find_node(graph, "aten::relu")})->block(0)->remove_return(0); })},
      {"kernel_names_each_state",
       [] {
         return Broken{parse("graph(%a : Tensor):\n"
                             "  %y : Tensor = sconce::kernel()\n"
                             "    block0():\n"
                             "      %r : Tensor = aten::relu_(%a)\n"
                             "      %n : Tensor = aten::neg(%a)\n"
                             "      -> (%n)\n"
                             "  return (%y)\n"),
                       {}};
       }},
      {"operators_have_schemas", small([](Graph& graph) { find_node(graph, "aten::relu")->set_op(unresolved_op()); })},
      {"inputs_match_schema",
       small([](Graph& graph) { find_node(graph, "aten::relu")->add_input(find_value(graph, "a")); })},
      {"outputs_match_schema",
       small([](Graph& graph) { find_node(graph, "aten::relu")->add_output(c10::TensorType::get()); })},
      {"outputs_match_schema",
       small([](Graph& graph) { find_node(graph, "aten::relu")->output()->set_type(c10::IntType::get()); })},
      {"constants_have_their_type", small([](Graph& graph) {
         graph.insert_constant(1, graph.body().return_node())->node()->set_attribute(attr::kValue, c10::IValue("text"));
       })},
      {"conditions_are_bool",
       small([](Graph& graph) { find_node(graph, "prim::If")->set_input(0, find_value(graph, "n")); })},
      {"block_results_fit",
       small([](Graph& graph) { find_node(graph, "prim::If")->block(1)->set_return(0, find_value(graph, "n")); })},
      {"facts_are_about_tensors", small([](Graph& graph) {
         TensorFacts facts;
         facts.requires_grad = true;
         find_value(graph, "n")->set_facts(facts);
       })},
  };
}

// Checks that no sequence of calls of the graph's interface can violate: it keeps links and uses itself. The test below
// shows that by trying.
const std::vector<std::string_view> kKeptByTheInterface = {"nodes_are_linked_to_their_block", "uses_match_inputs"};

std::vector<std::string_view> fired(const Graph& graph) {
  std::vector<std::string_view> names;
  for (const Violation& violation : find_violations(graph)) {
    names.push_back(violation.check);
    EXPECT_FALSE(violation.message.empty()) << violation.check;
  }
  return names;
}

TEST(Verifier, FindsNothingInAGoodGraph) {
  EXPECT_TRUE(find_violations(*parse(kSmall)).empty());
  EXPECT_NO_THROW(verify(*parse(kSmall), "nothing"));
}

TEST(Verifier, EveryCheckFiresOnAGraphThatBreaksItsRule) {
  for (const auto& [check, make] : violations_by_check()) {
    const Broken broken = make();
    EXPECT_THAT(fired(*broken.graph), ::testing::Contains(check)) << check;
  }
}

TEST(Verifier, EveryCheckHasAViolationInThisFile) {
  const auto violations = violations_by_check();
  const auto expect_covered = [&](std::span<const NamedCheck> checks) {
    for (const NamedCheck& check : checks) {
      const bool kept =
          std::find(kKeptByTheInterface.begin(), kKeptByTheInterface.end(), check.name) != kKeptByTheInterface.end();
      EXPECT_NE(violations.contains(std::string(check.name)), kept) << check.name;
    }
  };
  expect_covered(structure_checks());
  expect_covered(typing_checks());
}

TEST(Verifier, NamesThePassTheViolationsAndTheGraphInItsError) {
  const Broken broken = violations_by_check().at("operators_have_schemas")();
  const std::string message = testing::message_of([&] { verify(*broken.graph, "my_pass"); });
  EXPECT_THAT(message, ::testing::HasSubstr("malformed after my_pass"));
  EXPECT_THAT(message, ::testing::HasSubstr("operators_have_schemas: %x : Tensor = aten::relu(%a)"));
  EXPECT_THAT(message, ::testing::HasSubstr("return (%l)"));
}

TEST(Verifier, LooksAtTypesOnlyWhenTheStructureIsSound) {
  auto graph = parse(kSmall);
  find_node(*graph, "aten::relu")->set_op(unresolved_op());
  find_node(*graph, "prim::If")->block(1)->remove_return(0);
  EXPECT_EQ(fired(*graph), (std::vector<std::string_view>{"if_has_two_matching_branches"}));
}

TEST(Verifier, RefusesTheUseOfANodesOutputInItsOwnBlock) {
  auto graph = parse(kSmall);
  find_node(*graph, "prim::If")->block(1)->set_return(0, find_value(*graph, "r"));
  EXPECT_THAT(fired(*graph), ::testing::Contains("inputs_are_defined_before"));
}

TEST(Verifier, RefusesTheUseOfABranchsValueOutsideOfIt) {
  auto graph = parse(kSmall);
  find_node(*graph, "prim::Loop")->set_input(2, find_value(*graph, "z"));
  EXPECT_THAT(fired(*graph), ::testing::Contains("inputs_are_defined_before"));
}

TEST(Verifier, RefusesEachMisshapenIfAndLoop) {
  const std::vector<std::pair<const char*, std::function<void(Graph&)>>> cases = {
      {"if_has_two_matching_branches", [](Graph& g) { find_node(g, "prim::If")->add_block(); }},
      {"if_has_two_matching_branches", [](Graph& g) { find_node(g, "prim::If")->add_input(find_value(g, "flag")); }},
      {"if_has_two_matching_branches", [](Graph& g) { find_node(g, "prim::If")->block(0)->add_param(c10::IntType::get()); }},
      {"if_has_two_matching_branches", [](Graph& g) { find_node(g, "prim::If")->add_output(c10::IntType::get()); }},
      {"loop_carries_the_same_values", [](Graph& g) { find_node(g, "prim::Loop")->add_block(); }},
      {"loop_carries_the_same_values", [](Graph& g) { find_node(g, "prim::Loop")->remove_input(2); }},
      {"loop_carries_the_same_values",
       [](Graph& g) { find_node(g, "prim::Loop")->block(0)->add_param(c10::IntType::get()); }},
      {"conditions_are_bool", [](Graph& g) { find_node(g, "prim::Loop")->set_input(0, find_value(g, "flag")); }},
      {"conditions_are_bool", [](Graph& g) { find_node(g, "prim::Loop")->block(0)->set_return(0, find_value(g, "n")); }},
      {"block_results_fit", [](Graph& g) { find_node(g, "prim::Loop")->set_input(2, find_value(g, "n")); }},
      {"facts_are_about_tensors",
       [](Graph& g) {
         TensorFacts facts;
         facts.sizes = {Dim::known(1)};
         facts.strides = {Dim::known(1), Dim::known(1)};
         find_value(g, "x")->set_facts(facts);
       }},
      {"inputs_match_schema", [](Graph& g) { find_node(g, "aten::relu")->set_input(0, find_value(g, "n")); }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    auto graph = parse(kSmall);
    cases[i].second(*graph);
    EXPECT_THAT(fired(*graph), ::testing::Contains(cases[i].first)) << "case " << i;
  }
}

// Why two checks have no violation above: whatever the interface is asked to do, links and uses stay right.
TEST(Graph, KeepsLinksAndUsesRightThroughEveryKindOfChange) {
  auto graph = parse(kSmall);
  Node* relu = find_node(*graph, "aten::relu");
  Node* neg = find_node(*graph, "aten::neg");
  EXPECT_THROW(relu->erase(), std::logic_error) << "its output is used";
  EXPECT_THROW(relu->insert_after(neg), std::logic_error) << "it stands somewhere";
  neg->output()->replace_all_uses_with(relu->output());
  neg->erase();
  EXPECT_THROW(neg->append_to(graph->body()), std::logic_error) << "it was erased";
  find_node(*graph, "prim::Loop")->output()->replace_all_uses_with(relu->output());
  find_node(*graph, "prim::Loop")->erase();
  Node* branch = find_node(*graph, "prim::If");
  EXPECT_TRUE(find_violations(*graph).empty());
  branch->set_input(0, find_value(*graph, "flag"));
  branch->remove_output(0);
  EXPECT_EQ(find_violations(*graph).size(), 1) << "two returns without an output";
  for (Block* block : branch->blocks()) {
    block->remove_return(0);
  }
  EXPECT_TRUE(find_violations(*graph).empty());
}

TEST(Graph, EraseTakesBlocksAndUsesAlong) {
  auto graph = parse(kSmall);
  Node* loop = find_node(*graph, "prim::Loop");
  Node* branch = find_node(*graph, "prim::If");
  graph->body().set_return(0, find_value(*graph, "a"));
  loop->erase();
  branch->erase();
  EXPECT_TRUE(branch->is_erased());
  EXPECT_EQ(find_value(*graph, "flag")->uses().size(), 0);
  EXPECT_EQ(find_value(*graph, "y")->uses().size(), 0);
  EXPECT_EQ(graph->node_count(), 2);
  EXPECT_TRUE(find_violations(*graph).empty());
}

TEST(Graph, RemoveInputRenumbersTheUsesBehindIt) {
  auto graph =
      parse("graph(%a : Tensor, %b : Tensor):\n  %l : Tensor[] = prim::ListConstruct(%a, %b, %a, %a)\n  return (%l)\n");
  find_node(*graph, "prim::ListConstruct")->remove_input(0);
  EXPECT_EQ(find_node(*graph, "prim::ListConstruct")->inputs().size(), 3);
  EXPECT_TRUE(find_violations(*graph).empty());
  find_node(*graph, "prim::ListConstruct")->remove_input(1);
  EXPECT_TRUE(find_violations(*graph).empty());
  EXPECT_EQ(find_value(*graph, "a")->uses().size(), 1);
}

TEST(Graph, CloneSharesNothingThatChanges) {
  auto graph = parse(kSmall);
  auto copy = graph->clone();
  find_node(*copy, "aten::relu")->set_op(unresolved_op());
  find_node(*copy, "prim::If")->block(1)->set_return(0, find_value(*copy, "a"));
  EXPECT_TRUE(find_violations(*graph).empty());
  EXPECT_EQ(&find_value(*copy, "x")->graph(), copy.get());
}

TEST(Graph, TheVisitedNodeMayBeErasedWhileIterating) {
  auto graph = parse(kSmall);
  graph->body().set_return(0, find_value(*graph, "a"));
  size_t visits = 0;
  for_each_node(graph->body(), [&](Node* node) {
    ++visits;
    if (node->kind() == prim::Loop) {
      node->erase();
    }
  });
  EXPECT_EQ(visits, 5);
  EXPECT_TRUE(find_violations(*graph).empty());
}

}  // namespace
}  // namespace sconce
