// Passes of the user's: where they run, what happens to those that fail, plug-ins.
#include <sconce/pass_pipeline.h>
#include <sconce/sconce.h>

#include "tests/support/graphs.h"

#include "executor/compile.h"
#include "ir/schema_match.h"
#include "ir/text/print.h"
#include "pipeline/reproducer.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <gmock/gmock.h>

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace sconce {
namespace {

using ::testing::AllOf;
using testing::count_nodes;
using testing::find_node;
using testing::graph_of;
using ::testing::HasSubstr;
using testing::message_of;
using testing::plugin_file;

constexpr const char* kGraph =
    "graph(%a : Tensor):\n"
    "  %b : Tensor = aten::neg(%a)\n"
    "  %dead : Tensor = aten::tanh(%a)\n"
    "  %c : Tensor = aten::relu(%b)\n"
    "  return (%c)\n";

bool relu_to_tanh(Graph& graph) {
  bool changed = false;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() == aten::relu) {
      Node* tanh = graph.create(aten::tanh, node->inputs());
      resolve(*tanh);
      tanh->insert_before(node);
      node->output()->replace_all_uses_with(tanh->output());
      node->erase();
      changed = true;
    }
  });
  return changed;
}

at::Tensor run(const Options& options, const at::Tensor& x) { return testing::run(kGraph, {x}, options).front().toTensor(); }

Explanation explain(const Options& options) { return GraphExecutor(graph_of(kGraph), "f", options).explain(); }

TEST(PassPipeline, RunsPassesAtTheirPlacesInTheOrderInWhichTheyWereAdded) {
  Options options;
  const auto nothing = [](Graph&) { return false; };
  options.passes()
      .after(Stage::kRequired, "third", nothing)
      .before(Stage::kRequired, "first", nothing)
      .before(Stage::kRequired, "second", nothing)
      .after(Stage::kOptimize, "last", nothing);
  std::vector<std::string> order;
  for (const PassTiming& timing : explain(options).passes) {
    order.push_back(timing.pass);
  }
  EXPECT_EQ(order.at(0), "first");
  EXPECT_EQ(order.at(1), "second");
  ASSERT_EQ(order.back(), "form_groups");
  EXPECT_EQ(order.at(order.size() - 3), "last");
  const auto third = std::find(order.begin(), order.end(), "third");
  ASSERT_NE(third, order.end());
  EXPECT_EQ(*(third - 1), "eliminate_dead_nodes");
  EXPECT_EQ(*(third + 1), "lower_tuples");
}

TEST(PassPipeline, APassChangesWhatRunsAndCanBeRemoved) {
  const at::Tensor x = at::randn({3});
  Options options;
  options.passes().after(Stage::kOptimize, "relu_to_tanh", relu_to_tanh);
  EXPECT_TRUE(at::equal(run(options, x), at::tanh(-x)));
  options.passes().remove("relu_to_tanh");
  EXPECT_TRUE(at::equal(run(options, x), at::relu(-x)));
}

TEST(PassPipeline, APassBelongsToItsModuleAlone) {
  const at::Tensor x = at::randn({3});
  Options options;
  options.passes().after(Stage::kOptimize, "relu_to_tanh", relu_to_tanh);
  EXPECT_TRUE(at::equal(run(Options(), x), at::relu(-x)));
}

TEST(PassPipeline, WithoutOptimisationOnlyPassesOfTheRequiredStageRun) {
  const at::Tensor x = at::randn({3});
  Options options = Options().optimize(false);
  options.passes().after(Stage::kOptimize, "relu_to_tanh", relu_to_tanh);
  EXPECT_TRUE(at::equal(run(options, x), at::relu(-x)));
  options.passes().remove("relu_to_tanh").after(Stage::kRequired, "relu_to_tanh", relu_to_tanh);
  EXPECT_TRUE(at::equal(run(options, x), at::tanh(-x)));
}

TEST(PassPipeline, LeavesOutWhatIsDisabled) {
  Options options;
  options.passes().disable("form_groups");
  EXPECT_EQ(explain(options).passes.back().pass, "hoist_attribute_reads");
  options.passes().enable("form_groups");
  EXPECT_EQ(explain(options).passes.back().pass, "form_groups");
  options.passes().after(Stage::kFuse, "mine", relu_to_tanh).disable("mine");
  EXPECT_EQ(explain(options).passes.back().pass, "form_groups");
}

TEST(PassPipeline, RefusesNamesThatAreTakenUnknownOrNeeded) {
  PassPipeline passes;
  const auto nothing = [](Graph&) { return false; };
  passes.after(Stage::kOptimize, "mine", nothing);
  EXPECT_THAT(message_of([&] { passes.before(Stage::kRequired, "mine", nothing); }), HasSubstr("named 'mine' already"));
  EXPECT_THAT(message_of([&] { passes.after(Stage::kRequired, "peephole", nothing); }), HasSubstr("already"));
  EXPECT_THAT(message_of([&] { passes.after(Stage::kRequired, "a/b", nothing); }), HasSubstr("letters"));
  EXPECT_THAT(message_of([&] { passes.after(Stage::kRequired, "none", nullptr); }), HasSubstr("no function"));
  EXPECT_THAT(message_of([&] { passes.after(Stage::kOnRequest, "late", nothing); }), HasSubstr("not 'on request'"));
  EXPECT_THAT(message_of([&] { passes.remove("other"); }), HasSubstr("no pass of your own named 'other'"));
  EXPECT_THAT(message_of([&] { passes.remove("peephole"); }), HasSubstr("disable()"));
  EXPECT_THAT(message_of([&] { passes.disable("unrol_loops"); }), HasSubstr("nearest: unroll_loops"));
  EXPECT_THAT(message_of([&] { passes.disable("lower_autocast"); }), HasSubstr("cannot run without"));
}

TEST(PassPipeline, SweepsUpBehindPassesThatChangeTheGraph) {
  Options options;
  options.passes().after(Stage::kOptimize, "leaves_dead_nodes", [](Graph& graph) {
    Node* relu = find_node(graph, "aten::relu");
    Node* tanh = graph.create(aten::tanh, relu->inputs());
    resolve(*tanh);
    tanh->insert_before(relu);
    return true;
  });
  const Explanation explanation = explain(options);
  EXPECT_TRUE(explanation.refusals.empty());
  EXPECT_THAT(explanation.plans.at(0).text, ::testing::Not(HasSubstr("aten::tanh")));
}

// ---- passes that fail -----------------------------------------------------------------------------------------------

struct Failing {
  const char* name;
  PassCallback run;
  const char* problem;
};

class FailingPass : public ::testing::TestWithParam<Failing> {};

TEST_P(FailingPass, IsNamedAndLeftOutAndItsReproducerFailsAgain) {
  const auto folder = std::filesystem::temp_directory_path() / ("sconce-passes-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  Options options;
  options.passes().reproducer_folder(folder.string()).after(Stage::kOptimize, GetParam().name, GetParam().run);
  const at::Tensor x = at::randn({3});
  EXPECT_TRUE(at::equal(run(options, x), at::relu(-x)));
  const Explanation explanation = explain(options);
  ASSERT_EQ(explanation.refusals.size(), 1U);
  EXPECT_EQ(explanation.counters.refusals, 1U);
  EXPECT_EQ(explanation.refusals[0].what, std::string("pass ") + GetParam().name);
  EXPECT_THAT(explanation.refusals[0].reason,
              AllOf(HasSubstr(GetParam().problem), HasSubstr("; the graph before the pass: ")));

  const std::string reason = explanation.refusals[0].reason;
  const Reproducer reproducer = read_reproducer(reason.substr(reason.find(folder.string())));
  EXPECT_EQ(reproducer.pass, GetParam().name);
  EXPECT_THAT(reproducer.problem, HasSubstr(GetParam().problem));
  EXPECT_EQ(count_nodes(*reproducer.graph, "aten::relu"), 1U);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(
    PassPipeline, FailingPass,
    ::testing::Values(Failing{"throwing", [](Graph&) -> bool { throw std::runtime_error("out of\nluck"); },
                              "threw an exception: out of luck"},
                      Failing{"throwing_a_number", [](Graph&) -> bool { throw 5; },
                              "threw an exception: a value of type int"},
                      Failing{"breaking",
                              [](Graph& graph) {
                                find_node(graph, "aten::relu")->set_op(unresolved_op());
                                return true;
                              },
                              "violated a graph invariant ("},
                      Failing{"breaking_at_length",
                              [](Graph& graph) {
                                Node* relu = find_node(graph, "aten::relu");
                                relu->set_input(0, graph.insert_constant(int64_t{1}, relu));
                                return true;
                              },
                              "violated a graph invariant"},
                      Failing{"returning_less",
                              [](Graph& graph) {
                                graph.body().remove_return(0);
                                return true;
                              },
                              "changed the types or number of the graph's inputs or outputs"},
                      Failing{"taking_more",
                              [](Graph& graph) {
                                graph.add_input("more", c10::IntType::get());
                                return true;
                              },
                              "changed the types or number of the graph's inputs or outputs"},
                      Failing{"setting_null",
                              [](Graph& graph) {
                                find_node(graph, "aten::relu")->set_input(0, nullptr);
                                return true;
                              },
                              "violated a graph invariant: input 0 of aten::relu"},
                      Failing{"boasting", [](Graph&) { return true; }, "returned true but did not change the graph"},
                      Failing{"hiding", [](Graph& graph) { return relu_to_tanh(graph) && false; },
                              "returned false but changed the graph"}),
    [](const auto& each) { return std::string(each.param.name); });

// A copy of a graph from which nodes were removed gives other numbers to the values without a name.
TEST(PassPipeline, BelievesPassesThatTellTheTruth) {
  const char* const graph =
      "graph(%0 : Tensor):\n"
      "  %1 : Tensor = aten::tanh(%0)\n"
      "  %2 : Tensor = aten::neg(%0)\n"
      "  %3 : Tensor = aten::relu(%2)\n"
      "  return (%3)\n";
  Options options;
  options.passes()
      .after(Stage::kOptimize, "nothing", [](Graph&) { return false; })
      .after(Stage::kOptimize, "relu_to_tanh", relu_to_tanh);
  const Explanation explanation = GraphExecutor(graph_of(graph), "f", options).explain();
  EXPECT_TRUE(explanation.refusals.empty()) << explanation.refusals[0].reason;
  EXPECT_THAT(explanation.plans.at(0).text, HasSubstr("aten::tanh"));
  options.passes().after(Stage::kOptimize, "boasting", [](Graph&) { return true; });
  EXPECT_EQ(GraphExecutor(graph_of(graph), "f", options).explain().refusals.size(), 1U);
}

TEST(FailingPasses, AreNamedWithTheFunctionThatIsCalled) {
  Options options;
  options.passes().reproducer_folder("").after(Stage::kOptimize, "boasting", [](Graph&) { return true; });
  const Module module = load(testing::models_dir() + "/interface_dispatch.pt", options);
  module.run_method("forward", {at::randn({2, 5}), c10::List<int64_t>({1, 0, 1})});
  std::vector<std::string> refused;
  for (const RefusalExplanation& refusal : module.method("forward").explain().refusals) {
    refused.push_back(refusal.what);
  }
  EXPECT_THAT(refused, ::testing::Contains("pass boasting"));
  EXPECT_THAT(refused, ::testing::Contains(AllOf(HasSubstr("pass boasting in "), HasSubstr("__torch__"))));
}

TEST(FailingPasses, SayWhyThereIsNoReproducer) {
  Options options;
  options.passes().reproducer_folder("/nowhere").after(Stage::kOptimize, "boasting", [](Graph&) { return true; });
  EXPECT_THAT(explain(options).refusals.at(0).reason, HasSubstr("cannot write a reproducer: /nowhere/sconce-boasting"));
  options.passes().reproducer_folder("");
  EXPECT_THAT(explain(options).refusals.at(0).reason, ::testing::Not(HasSubstr("reproducer")));
}

TEST(Reproducer, KeepsTensorConstants) {
  const auto folder = std::filesystem::temp_directory_path();
  auto graph = graph_of("graph(%a : Tensor):\n  %b : Tensor = aten::neg(%a)\n  return (%b)\n");
  const at::Tensor large = at::randn({100, 100});
  Node* node = find_node(*graph, "aten::neg");
  node->set_input(0, graph->insert_constant(large, node));
  const std::string path = write_reproducer({"p", "", "none", std::move(graph)}, folder.string());
  const Reproducer read = read_reproducer(path);
  EXPECT_TRUE(at::equal(find_node(*read.graph, "aten::neg")->input(0)->constant()->toTensor(), large));
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".constants.pt");
}

// As on a full disk: no file may grow beyond the limit.
TEST(Reproducer, IsWholeOrLeavesNothing) {
  const auto folder = std::filesystem::temp_directory_path() / ("sconce-full-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{16, before.rlim_max};
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = message_of([&] { write_reproducer({"p", "", "none", graph_of(kGraph)}, folder.string()); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, signal_before);
  EXPECT_THAT(message, HasSubstr("cannot be written: File too large"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST(Reproducer, ExplainsFilesThatAreNone) {
  EXPECT_THAT(message_of([] { read_reproducer("/nowhere.ir"); }), HasSubstr("/nowhere.ir: cannot be read"));
  const std::string path = std::filesystem::temp_directory_path() / "sconce-no-reproducer.ir";
  std::ofstream(path) << "graph(%a : Tensor):\n  return (%a)\n";
  EXPECT_THAT(message_of([&] { read_reproducer(path); }), HasSubstr("is no reproducer"));
  std::filesystem::remove(path);
}

// ---- plug-ins -------------------------------------------------------------------------------------------------------

TEST(PassPlugin, AddsPassesThatRunAndCanBeRemoved) {
  Options options;
  options.passes().load_plugin(plugin_file("custom_pass"));
  ASSERT_EQ(options.passes().custom_passes().size(), 3U);
  EXPECT_EQ(options.passes().custom_passes()[0].name, "use_silu");
  EXPECT_THAT(options.passes().custom_passes()[0].library, HasSubstr("custom_pass.so"));
  const char* const source =
      "graph(%a : Tensor):\n"
      "  %s : Tensor = aten::sigmoid(%a)\n"
      "  %m : Tensor = aten::mul(%a, %s)\n"
      "  %r : Tensor = aten::relu(%m)\n"
      "  %q : Tensor = aten::relu(%r)\n"
      "  %t : Tensor = aten::tanh(%q)\n"
      "  return (%t)\n";
  const std::string with = GraphExecutor(graph_of(source), "f", options).explain().plans.at(0).text;
  EXPECT_THAT(with, AllOf(HasSubstr("aten::silu"), ::testing::Not(HasSubstr("aten::sigmoid"))));
  EXPECT_EQ(with.find("aten::relu"), with.rfind("aten::relu")) << with;
  options.passes().remove("use_silu").remove("drop_second_relu");
  EXPECT_THAT(GraphExecutor(graph_of(source), "f", options).explain().plans.at(0).text, HasSubstr("aten::sigmoid"));
}

TEST(PassPlugin, OneForAnotherVersionIsRefusedWithBoth) {
  PassPipeline passes;
  EXPECT_THAT(message_of([&] { passes.load_plugin(plugin_file("other_version")); }),
              AllOf(HasSubstr("was built for sconce 99.0, LibTorch 1.0"), HasSubstr("; this is sconce 0."),
                    HasSubstr("LibTorch 2.11")));
  EXPECT_TRUE(passes.custom_passes().empty());
}

TEST(PassPlugin, WhatIsNoneIsExplained) {
  PassPipeline passes;
  EXPECT_THAT(message_of([&] { passes.load_plugin("/nowhere.so"); }), HasSubstr("/nowhere.so: no such file"));
  EXPECT_THAT(message_of([&] { passes.load_plugin(plugin_file("custom_operators")); }),
              HasSubstr("is no library of passes"));
  const std::string text = testing::tests_dir() + "/CMakeLists.txt";
  EXPECT_THAT(message_of([&] { passes.load_plugin(text); }), HasSubstr("cannot be opened"));
  EXPECT_THAT(message_of([&] { passes.load_plugin(plugin_file("throwing_plugin")); }),
              HasSubstr("throwing_plugin.so: cannot add its passes: it throws: a value of type int"));
  EXPECT_TRUE(passes.custom_passes().empty());

  const auto half = std::filesystem::temp_directory_path() / ("sconce-half-" + std::to_string(getpid()) + ".so");
  std::filesystem::copy_file(plugin_file("custom_pass"), half);
  std::filesystem::resize_file(half, 4096);  // what is loaded reaches further, whatever debug information follows it
  EXPECT_THAT(message_of([&] { passes.load_plugin(half.string()); }), HasSubstr("the file is cut short"));
  std::filesystem::remove(half);
}

}  // namespace
}  // namespace sconce
