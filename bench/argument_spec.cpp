// What a call costs before it runs: making the argument spec, and finding the plan in the cache.
#include "executor/argument_spec/argument_spec.h"
#include "executor/plan_cache/plan_cache.h"
#include "load/convert.h"
#include "load/function_table.h"
#include "passes/required/inline_calls.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/jit/api/module.h>

namespace sconce {
namespace {

struct Subject {
  std::unique_ptr<Graph> graph;
  std::vector<c10::IValue> arguments;
};

Subject inlined(const torch::jit::Module& module, std::vector<c10::IValue> arguments) {
  FunctionTable functions;
  Subject subject;
  subject.graph = (*functions.graph_of(module.get_method("forward").function()))->clone();
  const auto changed = inline_calls(*subject.graph, functions);
  TORCH_CHECK(changed, "the benchmark's model cannot be inlined");
  subject.arguments = std::move(arguments);
  subject.arguments.insert(subject.arguments.begin(), module._ivalue());
  return subject;
}

void measure(benchmark::State& state, const Subject& subject) {
  const ArgumentSpecCreator creator(*subject.graph);
  ArgumentSpec spec;
  PlanCache<int> cache(8);
  const PlanCache<int>::Guard outer(cache);
  creator.create(subject.arguments, spec);
  cache.find_or_insert(outer, spec.words(), spec.hash(), [] { return 1; });
  for (auto _ : state) {
    const PlanCache<int>::Guard guard(cache);
    creator.create(subject.arguments, spec);
    benchmark::DoNotOptimize(cache.find(guard, spec.words(), spec.hash()));
  }
  state.counters["words"] = static_cast<double>(spec.words().size());
}

// Bar: 100 ns.
void four_tensors(benchmark::State& state) {
  torch::jit::Module module("Four");
  module.define("def forward(self, a, b, c, d):\n    return a + b + c + d\n");
  measure(state, inlined(module, {at::randn({4, 8}), at::randn({4, 8}), at::randn({8}), at::randn({4, 1})}));
}
BENCHMARK(four_tensors);

// As many tensors as resnet50 reads (161 parameters, 106 running statistics, 53 batch counters are not read in eval mode),
// one submodule for each layer's handful, as its layers have. Bar: 1500 ns.
void resnet50_attributes(benchmark::State& state) {
  torch::jit::Module root("Net");
  std::string source = "def forward(self, x):\n    y = x\n";
  for (int layer = 0; layer < 53; ++layer) {
    const std::string conv = "conv" + std::to_string(layer);
    const std::string norm = "norm" + std::to_string(layer);
    torch::jit::Module conv_module("Conv" + std::to_string(layer));
    conv_module.register_parameter("weight", at::randn({8, 8, 3, 3}), false);
    root.register_module(conv, conv_module);
    torch::jit::Module norm_module("Norm" + std::to_string(layer));
    source += "    y = y + self." + conv + ".weight\n";
    for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
      norm_module.register_parameter(name, at::randn({8}), false);
      source += "    y = y + self." + norm + "." + name + "\n";
    }
    root.register_module(norm, norm_module);
  }
  torch::jit::Module fc("Fc");
  fc.register_parameter("weight", at::randn({10, 8}), false);
  fc.register_parameter("bias", at::randn({10}), false);
  root.register_module("fc", fc);
  root.define(source + "    return y + self.fc.weight.sum() + self.fc.bias.sum()\n");
  measure(state, inlined(root, {at::randn({1, 3, 8, 8})}));
}
BENCHMARK(resnet50_attributes);

}  // namespace
}  // namespace sconce
