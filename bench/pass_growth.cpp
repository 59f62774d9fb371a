// How the time of each pass grows with the graph: nodes of 100, 1,000, 10,000 and 100,000, and the complexity that Google
// Benchmark fits to them (BigO). The graphs hold what passes look at: common nodes, constants, lists, tuples, branches,
// loops. A graph of 100,000 nodes lies in no cache: `walk`, which visits each node and does nothing, tells how much dearer
// each is there, and `per_walk` how many walks a pass costs: of a linear pass it stays as it is.
#include "ir/text/parse.h"
#include "pipeline/pass_list.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdlib>
#include <string>

namespace sconce {
namespace {

// Fifteen nodes that depend on those before.
void add_part(std::string& text, size_t part, const std::string& previous) {
  const std::string p = std::to_string(part);
  text += "  %n" + p + " : int = prim::Constant[value=" + std::to_string(part % 7) + "]()\n";
  text += "  %m" + p + " : int = aten::add(%n" + p + ", %n" + p + ")\n";
  text += "  %a" + p + " : Tensor = aten::mul(" + previous + ", %x)\n";
  text += "  %b" + p + " : Tensor = aten::mul(" + previous + ", %x)\n";
  text += "  %c" + p + " : Tensor = aten::add(%a" + p + ", %b" + p + ", %m" + p + ")\n";
  text += "  %l" + p + " : Tensor[] = prim::ListConstruct(%a" + p + ", %c" + p + ")\n";
  text += "  %g" + p + " : Tensor = aten::__getitem__(%l" + p + ", %one)\n";
  text += "  %t" + p + " : (Tensor, Tensor) = prim::TupleConstruct(%g" + p + ", %b" + p + ")\n";
  text += "  %u" + p + " : Tensor, %v" + p + " : Tensor = prim::TupleUnpack(%t" + p + ")\n";
  text += "  %i" + p + " : Tensor = prim::If(%flag)\n    block0():\n      %j" + p + " : Tensor = aten::tanh(%u" + p +
          ")\n      -> (%j" + p + ")\n    block1():\n      -> (%v" + p + ")\n";
  text += "  %r" + p + " : Tensor = prim::Loop(%k, %true, %i" + p + ")\n    block0(%q" + p + " : int, %y" + p +
          " : Tensor):\n      %h" + p + " : int = aten::mul(%k, %k)\n      %z" + p + " : Tensor = aten::add(%y" + p +
          ", %x, %h" + p + ")\n      -> (%true, %z" + p + ")\n";
  text += "  %w" + p + " : Tensor = aten::neg_(%c" + p + ")\n";
}

std::unique_ptr<Graph> graph_of_size(int64_t nodes) {
  constexpr int64_t kNodesOfAPart = 15;
  std::string text =
      "graph(%x : Tensor, %k : int, %flag : bool):\n  %one : int = prim::Constant[value=1]()\n"
      "  %true : bool = prim::Constant[value=1]()\n";
  std::string previous = "%x";
  for (int64_t part = 0; part < nodes / kNodesOfAPart; ++part) {
    add_part(text, static_cast<size_t>(part), previous);
    previous = "%r" + std::to_string(part);
  }
  return parse(text + "  return (" + previous + ")\n");
}

bool walk(Graph& graph) {
  bool is_odd = false;
  for_each_node(graph.body(), [&](Node* node) { is_odd ^= node->outputs().size() == 1; });
  return is_odd;
}

double seconds_of(PassFunction pass, Graph& graph) {
  const auto start = std::chrono::steady_clock::now();
  benchmark::DoNotOptimize(pass(graph));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Walk and pass take turns, each on a copy that was just made.
void run_pass(benchmark::State& state, PassFunction pass) {
  const std::unique_ptr<Graph> graph = graph_of_size(state.range(0));
  double of_walks = 0;
  double of_passes = 0;
  for (auto _ : state) {
    of_walks += seconds_of(walk, *graph->clone());
    const std::unique_ptr<Graph> copy = graph->clone();
    const double seconds = seconds_of(pass, *copy);
    state.SetIterationTime(seconds);
    of_passes += seconds;
  }
  state.counters["per_walk"] = of_passes / of_walks;
  state.SetComplexityN(static_cast<int64_t>(graph->node_count()));
}

const int registered = [] {
  const int64_t largest = std::getenv("SCONCE_BENCH_SMOKE") != nullptr ? 1000 : 100'000;
  const auto add = [&](const std::string& name, PassFunction pass) {
    auto* each = benchmark::RegisterBenchmark(name.c_str(), run_pass, pass);
    for (int64_t nodes = 100; nodes <= largest; nodes *= 10) {
      each->Arg(nodes);
    }
    each->UseManualTime()->Unit(benchmark::kMillisecond)->Complexity();
  };
  add("walk", walk);
  for (const PassInfo& pass : all_passes()) {
    add(std::string(pass.name), pass.function);
  }
  return 0;
}();

}  // namespace
}  // namespace sconce
