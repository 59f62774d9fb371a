// What sconce's analyses say about memory, against runs in which every value is watched (memory_claims.h has the claims):
// generated graphs, the models, the snippets of the language, the operator suite; as loaded and after all passes. And how
// precise they are, beside torch::jit::AliasDb.
//
//   SCONCE_GRAPHS=20000 build/release/tests/differential_test --gtest_filter='AliasSoundness.*Graphs'    more graphs
//   SCONCE_SEED=17 …                                                                                     this one alone
//   SCONCE_ALIAS_MODELS=1000 … --gtest_filter='AliasSoundness.*Models'                                   all models
#include "tests/differential/alias_precision.h"
#include "tests/differential/memory_claims.h"
#include "tests/support/environment_number.h"
#include "tests/support/graph_generator.h"
#include "tests/support/graph_shrinker.h"
#include "tests/support/graphs.h"
#include "tests/support/memory_recorder.h"
#include "tests/support/model_files.h"
#include "tests/support/part.h"

#include "tools/sconce/commands/ops_library.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

#include "executor/callee_table.h"
#include "executor/stages.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/print_handler.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

namespace sconce::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kMaxFailures = 5;  // reports are long

enum class Passes { kNone, kRequired, kAll };

std::unique_ptr<Graph> behind_passes(const Graph& graph, Passes passes) {
  std::unique_ptr<Graph> copy = graph.clone();
  PassRunner runner;
  if (passes != Passes::kNone) {
    run_stage(Stage::kRequired, copy, runner);
  }
  if (passes == Passes::kAll) {
    run_stage(Stage::kOptimize, copy, runner);
  }
  return copy;
}

// A named list of what is wrong, each line once.
void add_findings(std::vector<std::string>& all, const std::string& where, const std::vector<std::string>& found) {
  for (const std::string& line : found) {
    if (const std::string named = where + ": " + line; std::find(all.begin(), all.end(), named) == all.end()) {
      all.push_back(named);
    }
  }
}

// What was looked at.
struct Totals {
  size_t runs = 0;
  size_t raised = 0;
  size_t executions = 0;
  PairCounts counts;
  size_t refused_by_torch = 0;  // graphs that AliasDb cannot analyze
  std::string first_refusal;

  void add(const RecordedRun& run) {
    ++runs;
    raised += run.error ? 1 : 0;
    executions += run.executions;
  }
  // Whether AliasDb could count.
  std::optional<PairCounts> add_pairs(const Graph& graph, const RecordedRun& run) {
    try {
      const PairCounts of_run = count_pairs(graph, run);
      counts += of_run;
      return of_run;
    } catch (const c10::Error& refusal) {
      if (refused_by_torch++ == 0) {
        const std::string reason = refusal.what_without_backtrace();
        const size_t behind_place_in_code = reason.find("PyTorch. ");
        first_refusal = reason.substr(behind_place_in_code == std::string::npos ? 0 : behind_place_in_code + 9, 200);
      }
      return std::nullopt;
    }
  }
  void print() const {
    std::cout << runs << " runs (" << raised << " raised) of " << executions << " nodes\n"
              << precision_head() << precision_row("all", counts);
    if (refused_by_torch > 0) {
      std::cout << refused_by_torch << " graphs are refused by AliasDb, the first: " << first_refusal << "\n";
    }
  }
};

// ---- generated graphs -----------------------------------------------------------------------------------------------

std::vector<std::string> findings_in(const Graph& graph, const GeneratedGraph& generated, Totals* totals) {
  std::vector<std::string> found;
  for (const Passes passes : {Passes::kNone, Passes::kAll}) {
    const std::unique_ptr<Graph> planned = behind_passes(graph, passes);
    // Other strides and optionals in each call; without gradients, and with.
    for (const int call : {1, 2}) {
      const bool requires_grad = call == 2;
      const std::vector<c10::IValue> arguments =
          make_arguments(generated, passes == Passes::kNone ? call : 3, requires_grad);
      at::manual_seed(generated.seed);
      const RecordedRun run = record_run(*planned, arguments);
      add_findings(found, std::string(passes == Passes::kNone ? "as it is" : "after all passes"),
                   wrong_claims(*planned, run, requires_grad ? Autograd::kOn : Autograd::kOff));
      if (totals != nullptr) {
        totals->add(run);
        if (passes == Passes::kNone && call == 1) {
          totals->add_pairs(*planned, run);
        }
      }
    }
  }
  return found;
}

TEST(AliasSoundness, HoldsOnGeneratedGraphs) {
  const bool alone = std::getenv("SCONCE_SEED") != nullptr;
  const Seeds seeds =
      alone ? Seeds{environment_number("SCONCE_SEED", 1), 1} : seeds_in_part({1, environment_number("SCONCE_GRAPHS", 500)});
  Totals totals;
  size_t failures = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end() && failures < kMaxFailures; ++seed) {
    const GeneratedGraph generated = generate_graph(seed);
    const std::unique_ptr<Graph> graph = parse(generated.text);
    const std::vector<std::string> found = findings_in(*graph, generated, &totals);
    if (!found.empty()) {
      ++failures;
      const std::unique_ptr<Graph> small =
          shrink(*graph, [&](const Graph& candidate) { return !findings_in(candidate, generated, nullptr).empty(); });
      ADD_FAILURE() << "seed " << seed << "\n"
                    << c10::Join("\n", found) << "\nA minimal graph:\n"
                    << testing::text_of(*small) << c10::Join("\n", findings_in(*small, generated, nullptr))
                    << "\nAgain: SCONCE_SEED=" << seed
                    << " build/release/tests/differential_test --gtest_filter=AliasSoundness.HoldsOnGeneratedGraphs\n";
    }
  }
  std::cout << seeds.count << " graphs\n";
  totals.print();
  EXPECT_LE(totals.raised, 4 + totals.runs / 100);
}

// ---- models ---------------------------------------------------------------------------------------------------------

// Runs of one method, which may find what the runs before have left in the module.
class MethodRuns {
 public:
  MethodRuns(Module module, std::string method, Passes passes)
      : module_(std::move(module)),
        method_(std::move(method)),
        graph_(behind_passes(module_.method(method_).graph(), passes)) {}

  // `seed`: of LibTorch's generator.
  RecordedRun record(const std::vector<c10::IValue>& arguments, uint64_t seed) {
    const torch::jit::Module& script = module_.script_module();
    std::vector<c10::IValue> all = cli::fit_arguments(script, method_, cli::deep_copy(arguments));
    all.insert(all.begin(), c10::IValue(script._ivalue()));
    script.get_method(method_).function().getSchema().checkAndNormalizeInputs(all);
    at::manual_seed(seed);
    return record_run(*graph_, all, callees_.get());
  }
  const Graph& graph() const { return *graph_; }

 private:
  Module module_;
  std::string method_;
  const std::shared_ptr<CalleeTable> callees_ = CalleeTable::make(Options());
  std::unique_ptr<Graph> graph_;
};

// Two loads of one file.
struct TwoModules {
  explicit TwoModules(const std::string& file) : first(load(file)), second(load(file)) {}
  Module first;
  Module second;
};

// Runs the method of the first after the required passes, autograd on, and of the second after all passes, autograd off.
// The pairs that it returns are those of the very first run.
PairCounts check_method(const TwoModules& modules, const std::string& method,
                        const std::vector<std::vector<c10::IValue>>& calls, uint64_t seed, Totals& totals) {
  PairCounts counts;
  std::vector<std::string> found;
  for (const bool grad : {true, false}) {
    MethodRuns runs(grad ? modules.first : modules.second, method, grad ? Passes::kRequired : Passes::kAll);
    const c10::AutoGradMode grad_mode(grad);
    for (size_t i = 0; i < calls.size(); ++i) {
      const RecordedRun run = runs.record(calls[i], seed);
      totals.add(run);
      add_findings(found, method + (grad ? ", required passes" : ", all passes"),
                   wrong_claims(runs.graph(), run, grad ? Autograd::kOn : Autograd::kOff));
      if (grad && i == 0) {
        counts = totals.add_pairs(runs.graph(), run).value_or(PairCounts());
      }
    }
  }
  EXPECT_THAT(found, IsEmpty());
  return counts;
}

// Small files first.
std::vector<std::string> models_by_size() {
  cli::open_ops_library(plugin_file("torchvision_ops"));
  std::vector<std::string> names = model_names();
  const std::vector<std::string> more = model_names("torchvision_ops");
  names.insert(names.end(), more.begin(), more.end());
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::filesystem::file_size(model_file(a)) < std::filesystem::file_size(model_file(b));
  });
  return names;
}

TEST(AliasSoundness, HoldsOnModels) {
  const std::vector<std::string> names = models_by_size();
  const size_t count = std::min<size_t>(names.size(), environment_number("SCONCE_ALIAS_MODELS", 40));
  Totals totals;
  std::cout << precision_head();
  for (size_t i = 0; i < count; ++i) {
    SCOPED_TRACE(names[i]);
    auto cases = std::get<cli::ModelCases>(cli::read_cases(cases_file(names[i])));
    cases.inputs.resize(std::min<size_t>(cases.inputs.size(), 2));
    const PairCounts counts = check_method(TwoModules(model_file(names[i])), cases.method, cases.inputs, cases.seed, totals);
    std::cout << precision_row(names[i], counts) << std::flush;
  }
  std::cout << count << " of " << names.size() << " models\n";
  totals.print();
}

TEST(AliasSoundness, HoldsOnSnippetsOfTheLanguage) {
  const auto print_handler = torch::jit::getPrintHandler();
  torch::jit::setPrintHandler([](const std::string&) {});
  Totals totals;
  size_t snippets = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models_dir() + "/language")) {
    SCOPED_TRACE(entry.path());
    const TwoModules modules(entry.path());
    for (const auto& method : modules.first.script_module().get_methods()) {
      const auto& arguments = method.function().getSchema().arguments();
      if (arguments.size() == 3 && arguments[1].name() == "x" && arguments[2].name() == "n") {
        const at::Tensor x = at::arange(6.0F).reshape({2, 3}) - 2;
        check_method(modules, method.name(), {{x, 3}, {x, -1}}, 1, totals);
        ++snippets;
      }
    }
  }
  torch::jit::setPrintHandler(print_handler);
  std::cout << snippets << " snippets\n";
  totals.print();
  EXPECT_GE(snippets, 150U);
}

TEST(AliasSoundness, HoldsOnTheOperatorSuite) {
  const std::string file = cases_file("operators");
  const auto cases = std::get<cli::OperatorCases>(cli::read_cases(file));
  const TwoModules modules(file);
  Totals totals;
  for (const cli::OperatorCase& each : cases) {
    SCOPED_TRACE(each.name);
    const std::vector<c10::IValue> arguments(each.inputs.begin(), each.inputs.end());
    check_method(modules, each.method, {arguments}, 1, totals);
  }
  std::cout << cases.size() << " operators\n";
  totals.print();
}

// ---- what the tests above are worth ---------------------------------------------------------------------------------

// Each of these damages the record of a run so that the analyses' claims, which are right, become wrong.
class DamagedRecord : public ::testing::Test {
 protected:
  std::set<Piece>& held(const char* name) { return run_.held.at(find_value(*graph_, name)); }
  std::vector<std::string> claims() const { return wrong_claims(*graph_, run_, Autograd::kOff); }

  const std::unique_ptr<Graph> graph_ = graph_of(R"(
graph(%x : Tensor, %n : int):
  %a : Tensor = aten::relu(%x)
  %v : Tensor = aten::select(%a, %n, %n)
  %w : Tensor = aten::neg_(%v)
  %b : Tensor = aten::tanh(%x)
  %l : Tensor[] = prim::ListConstruct(%b)
  %c : Tensor = aten::cat(%l, %n)
  return (%b))");
  const std::vector<c10::IValue> arguments_ = {at::ones({2, 2}), 0};
  RecordedRun run_ = record_run(*graph_, arguments_);
};

TEST_F(DamagedRecord, IsFineWithoutDamage) {
  EXPECT_THAT(claims(), IsEmpty());
  EXPECT_FALSE(run_.error);
  EXPECT_EQ(run_.held.size(), 7U) << "all but the number";
  EXPECT_EQ(run_.executions, 6U);
}

TEST_F(DamagedRecord, TellsSharing) {
  held("b").insert(*held("a").begin());
  EXPECT_THAT(claims(), Contains(HasSubstr("%a (aten::relu) and %b (aten::tanh) share memory")));
}

TEST_F(DamagedRecord, TellsSharingThroughAContainer) {
  run_.pieces[*held("l").begin()].contents.insert(*held("c").begin());
  EXPECT_THAT(claims(), Contains(HasSubstr("share memory, and are called distinct")));
}

TEST_F(DamagedRecord, TellsAWrite) {
  run_.changed[find_node(*graph_, "aten::tanh")] = held("x");
  EXPECT_THAT(claims(), Contains(HasSubstr("aten::tanh")));
  run_.changed.clear();
  run_.changed[find_node(*graph_, "aten::neg_")] = held("b");
  EXPECT_THAT(claims(), Contains(HasSubstr("writes the memory of %b (aten::tanh), and may_write does not say so")));
}

TEST_F(DamagedRecord, TellsWhatOutlivesTheRun) {
  for (const Piece piece : held("c")) {
    run_.pieces[piece].outlives_run = true;
  }
  EXPECT_THAT(claims(), Contains("%c (aten::cat) outlives the run, and find_escaping_values does not say so"));
  EXPECT_THAT(claims(), Contains("%c (aten::cat) outlives the run, and may_escape does not say so"));
}

// ---- what is recorded -----------------------------------------------------------------------------------------------

using ::testing::UnorderedElementsAre;

struct Recorded {
  Recorded(const std::string& text, std::vector<c10::IValue> given)
      : graph(graph_of(text)), arguments(std::move(given)), run(record_run(*graph, arguments)) {
    EXPECT_FALSE(run.error) << *run.error;
  }
  bool share(const char* a, const char* b) const {
    const std::set<Piece>& first = run.held.at(find_value(*graph, a));
    const std::set<Piece>& second = run.held.at(find_value(*graph, b));
    return std::any_of(first.begin(), first.end(), [&](Piece piece) { return second.contains(piece); });
  }
  bool changes(const char* kind, const char* value) const {
    const auto changed = run.changed.find(find_node(*graph, kind));
    const std::set<Piece>& held = run.held.at(find_value(*graph, value));
    return changed != run.changed.end() &&
           std::any_of(held.begin(), held.end(), [&](Piece piece) { return changed->second.contains(piece); });
  }
  bool outlives(const char* value) const {
    const std::set<Piece>& held = run.held.at(find_value(*graph, value));
    return std::any_of(held.begin(), held.end(), [&](Piece piece) { return run.pieces[piece].outlives_run; });
  }

  std::unique_ptr<Graph> graph;
  std::vector<c10::IValue> arguments;
  RecordedRun run;
};

TEST(MemoryRecorder, SeesWhatIterationsHaveInCommon) {
  const Recorded recorded(R"(
graph(%x : Tensor, %n : int, %true : bool):
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::tanh(%x)
  %l : Tensor, %m : Tensor = prim::Loop(%n, %true, %a, %b)
    block0(%i : int, %v : Tensor, %w : Tensor):
      %t : Tensor = aten::neg(%v)
      -> (%true, %w, %v)
  return ())",
                          {at::ones({2}), 2, true});
  EXPECT_TRUE(recorded.share("v", "a"));
  EXPECT_TRUE(recorded.share("v", "b")) << "in the second iteration";
  EXPECT_FALSE(recorded.share("a", "b"));
  EXPECT_FALSE(recorded.share("t", "a")) << "no address is used twice";
  EXPECT_FALSE(recorded.outlives("a"));
  EXPECT_TRUE(recorded.outlives("x"));
}

TEST(MemoryRecorder, SeesWritesThatNoVersionCounts) {
  const Recorded recorded(R"(
graph(%x : Tensor, %mean : Tensor, %var : Tensor, %l : Tensor[]):
  %none : NoneType = prim::Constant()
  %true : bool = prim::Constant[value=1]()
  %p : float = prim::Constant[value=0.5]()
  %y : Tensor = aten::batch_norm(%x, %none, %none, %mean, %var, %true, %p, %p, %true)
  %l2 : Tensor[] = aten::append(%l, %y)
  return (%x))",
                          {at::arange(6.0F).reshape({3, 2}), at::zeros({2}), at::ones({2}), c10::List<at::Tensor>()});
  EXPECT_TRUE(recorded.changes("aten::batch_norm", "mean"));
  EXPECT_TRUE(recorded.changes("aten::batch_norm", "var"));
  EXPECT_FALSE(recorded.changes("aten::batch_norm", "x"));
  EXPECT_TRUE(recorded.changes("aten::append", "l"));
  EXPECT_FALSE(recorded.changes("aten::append", "y"));
  EXPECT_TRUE(recorded.share("l", "l2"));
  EXPECT_TRUE(recorded.outlives("y")) << "in the caller's list";
}

TEST(MemoryRecorder, SeesStoragesOverTheSameBytes) {
  std::vector<float> numbers(8);
  const Recorded recorded(R"(
graph(%a : Tensor, %b : Tensor, %c : Tensor, %n : int):
  %sum : Tensor = aten::add(%a, %b, %n)
  return (%sum))",
                          {at::from_blob(numbers.data(), {4}), at::from_blob(numbers.data() + 2, {4}),
                           at::from_blob(numbers.data() + 6, {2}), 1});
  EXPECT_TRUE(recorded.share("a", "b"));
  EXPECT_FALSE(recorded.share("b", "c"));
  EXPECT_TRUE(recorded.outlives("sum")) << "an output";
}

}  // namespace
}  // namespace sconce::testing
