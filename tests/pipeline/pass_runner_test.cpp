#include "pipeline/pass_runner.h"

#include "tests/support/graphs.h"

#include "executor/stages.h"

#include <gmock/gmock.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>

namespace sconce {
namespace {

using ::testing::AllOf;
using testing::find_node;
using ::testing::HasSubstr;
using testing::message_of;

std::unique_ptr<Graph> small() {
  return testing::graph_of(
      "graph(%a : Tensor):\n  %b : Tensor = aten::neg(%a)\n  %c : Tensor = aten::neg(%b)\n  return (%c)\n");
}

bool honest_about_nothing(Graph&) { return false; }
bool claims_a_change_that_is_none(Graph&) { return true; }
bool hides_its_change(Graph& graph) {
  find_node(graph, "aten::neg")->output()->set_name("renamed");
  return false;
}
bool breaks_the_graph(Graph& graph) {
  find_node(graph, "aten::neg")->set_op(unresolved_op());
  find_node(graph, "aten::neg")->output()->set_name("renamed");
  return true;
}
bool changes_names(Graph& graph) {
  Value* value = find_node(graph, "aten::neg")->output();
  value->set_name(value->name() + "_");
  return true;
}

// Takes the first `neg` for the second.
bool merges_what_is_written(Graph& graph) {
  Node* first = find_node(graph, "aten::neg");
  Node* second = first->next();
  second->output()->replace_all_uses_with(first->output());
  second->erase();
  return true;
}

TEST(PassRunner, ReturnsWhatThePassReturnsAndTimesIt) {
  const auto graph = small();
  PassRunner runner(PassRunner::Verify::kAfterChange);
  EXPECT_FALSE(runner.run("nothing", honest_about_nothing, *graph));
  EXPECT_TRUE(runner.run("names", changes_names, *graph));
  ASSERT_EQ(runner.timings().size(), 2);
  EXPECT_EQ(runner.timings()[0].pass, "nothing");
  EXPECT_FALSE(runner.timings()[0].changed);
  EXPECT_TRUE(runner.timings()[1].changed);
  EXPECT_GE(runner.timings()[1].seconds, 0);
}

TEST(PassRunner, TimesThePartsOfAPassApartAndRunsThemAlways) {
  const auto graph = small();
  PassPipeline pipeline;
  pipeline.disable("peephole");
  PassRunner runner(pipeline);
  runner.begin_stage("here");
  const auto start = std::chrono::steady_clock::now();
  const auto part = [](Graph&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return false;
  };
  runner.run("whole", [&](Graph& whole) { return runner.run_part("peephole", part, whole); }, *graph);
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_EQ(runner.timings().size(), 2U);
  EXPECT_EQ(runner.timings()[0].pass, "peephole");
  EXPECT_EQ(runner.timings()[1].pass, "whole");
  EXPECT_EQ(runner.timings()[1].stage, "here");
  EXPECT_LE(runner.timings()[0].seconds + runner.timings()[1].seconds, elapsed);
}

TEST(PassRunner, CatchesAPassThatHidesItsChangeAndNamesIt) {
  const auto graph = small();
  const std::string message =
      message_of([&] { PassRunner(PassRunner::Verify::kAfterChange).run("sly", hides_its_change, *graph); });
  EXPECT_THAT(message, AllOf(HasSubstr("sly returned false but changed the graph"), HasSubstr("while: pass sly"),
                             HasSubstr("before:"), HasSubstr("%renamed")));
}

TEST(PassRunner, CatchesAPassThatClaimsAChangeThatIsNone) {
  const auto graph = small();
  EXPECT_THAT(
      message_of([&] { PassRunner(PassRunner::Verify::kAfterChange).run("vain", claims_a_change_that_is_none, *graph); }),
      HasSubstr("vain returned true but did not change the graph"));
}

TEST(PassRunner, CatchesAPassThatBreaksTheGraphAndNamesIt) {
  const auto graph = small();
  EXPECT_THAT(message_of([&] { PassRunner(PassRunner::Verify::kAfterChange).run("clumsy", breaks_the_graph, *graph); }),
              AllOf(HasSubstr("malformed after clumsy"), HasSubstr("operators_have_schemas")));
}

TEST(PassRunner, CatchesAPassThatMakesAnOperatorInPlaceWriteWhatItDidNot) {
  const auto graph = testing::graph_of(R"(
graph(%a : Tensor):
  %x : Tensor = aten::neg(%a)
  %y : Tensor = aten::neg(%a)
  %w : Tensor = aten::relu_(%x)
  %r : Tensor = aten::mm(%a, %y)
  return (%r))");
  EXPECT_THAT(message_of([&] { PassRunner(PassRunner::Verify::kAfterChange).run("eager", merges_what_is_written, *graph); }),
              AllOf(HasSubstr("after eager"), HasSubstr("aten::relu_(%x) may write what"), HasSubstr("aten::mm"),
                    HasSubstr("reads")));
}

TEST(PassRunner, ChecksNothingWhenToldNotTo) {
  const auto graph = small();
  PassRunner runner(PassRunner::Verify::kNever);
  EXPECT_FALSE(runner.run("sly", hides_its_change, *graph));
  EXPECT_TRUE(runner.run("vain", claims_a_change_that_is_none, *graph));
}

TEST(PassList, IsSortedAndFindsByName) {
  std::string_view previous;
  for (const PassInfo& pass : all_passes()) {
    EXPECT_LT(previous, pass.name);
    previous = pass.name;
    EXPECT_EQ(find_pass(pass.name), &pass);
    EXPECT_FALSE(pass.help.empty());
  }
  EXPECT_EQ(find_pass("no_such_pass"), nullptr);
}

// The list and executor/compile.cpp say the same.
TEST(PassList, NamesTheStageThatRunsEachPass) {
  std::map<Stage, std::set<std::string>> listed;
  for (const PassInfo& pass : all_passes()) {
    listed[pass.stage].emplace(pass.name);
  }
  std::map<Stage, std::set<std::string>> run;
  for (const Stage stage : {Stage::kRequired, Stage::kOptimize, Stage::kSpecialize, Stage::kFuse, Stage::kOnRequest}) {
    std::unique_ptr<Graph> graph = small();
    PassRunner runner;
    run_stage(stage, graph, runner, /*frozen=*/true);
    for (const PassTiming& timing : runner.timings()) {
      run[stage].insert(timing.pass);
    }
  }
  EXPECT_EQ(run[Stage::kRequired], listed[Stage::kRequired]);
  // Optimizing passes leave dead nodes, too.
  listed[Stage::kOptimize].insert("eliminate_dead_nodes");
  EXPECT_EQ(run[Stage::kOptimize], listed[Stage::kOptimize]);
  EXPECT_EQ(run[Stage::kFuse], listed[Stage::kFuse]);
  EXPECT_TRUE(run[Stage::kSpecialize].empty() && run[Stage::kOnRequest].empty());
}

TEST(PassList, SuggestsTheNearestNames) {
  EXPECT_EQ(nearest_pass_names("remove_expand").at(0), "remove_expands");
  EXPECT_EQ(nearest_pass_names("lower_gradof").at(0), "lower_grad_of");
}

// Behavior "required passes": a graph can always run after them.
TEST(RequiredPasses, LeaveAGraphThatCanRunWhateverTheyFind) {
  auto graph = testing::graph_of(
      "graph(%u : Tensor[Undefined], %x : Tensor, %g : Tensor):\n"
      "  %z : Tensor = prim::AutogradZero()\n"
      "  %size : int[] = prim::Constant[value=[2]]()\n"
      "  %yes : bool = prim::Constant[value=1]()\n"
      "  %e : Tensor = aten::expand(%x, %size, %yes)\n"
      "  %m : Tensor = aten::multiply(%x, %e)\n"
      "  %r : Tensor = prim::GradOf[name=\"f\"](%g)\n"
      "    block0():\n"
      "      %n : Tensor = aten::negative(%g)\n"
      "      -> (%n)\n"
      "  %s : Tensor = prim::AutogradAdd(%z, %r)\n"
      "  %dead : Tensor = aten::absolute(%m)\n"
      "  return (%m, %s)\n");
  PassRunner runner;
  run_stage(Stage::kRequired, graph, runner);
  std::vector<std::string> order;
  for (const PassTiming& timing : runner.timings()) {
    order.push_back(timing.pass);
  }
  EXPECT_THAT(order, ::testing::ElementsAre("specialize_autograd_zero", "lower_grad_of", "remove_expands",
                                            "canonicalize_ops", "lower_autocast", "eliminate_dead_nodes"));
  EXPECT_EQ(testing::count_nodes(*graph, "prim::GradOf"), 0);
  EXPECT_EQ(testing::count_nodes(*graph, "aten::expand"), 0);
  EXPECT_EQ(testing::count_nodes(*graph, "aten::multiply"), 0);
  EXPECT_EQ(testing::count_nodes(*graph, "aten::abs"), 0);
  EXPECT_TRUE(compile_method(std::move(graph)));
}

}  // namespace
}  // namespace sconce
