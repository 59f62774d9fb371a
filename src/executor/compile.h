// Compiles graphs to plans. stages.h has the order of the passes.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "load/function_table.h"
#include "passes/simplify/propagate_facts.h"
#include "pipeline/pass_runner.h"
#include "plan/callees.h"
#include "plan/intra_op_threads.h"
#include "plan/plan.h"
#include "plan/prepared/kernel.h"
#include "plan/profile.h"

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sconce {

class ModuleConstants;
class SymbolicSizes;

// A method, a function or a graph, ready to run.
struct CompiledMethod {
  std::unique_ptr<Graph> graph;  // calls inlined, and frozen; of a specialized plan, null
  std::unique_ptr<Plan> plan;    // the generic plan, which serves every argument spec, or a specialized one, or null
  std::vector<PassTiming> passes;
  std::vector<RefusalExplanation> refusals;      // attributes that were not frozen, passes that failed and were left out
  std::optional<GradientExplanation> gradients;  // of a specialized plan for calls that record gradients
  double seconds = 0;
};

// The bits of some of LibTorch's sums and products depend on how many threads they use.
inline IntraOpLimit thread_limit_of(const Options& options) {
  return {.most = options.intra_op_threads(), .shares_cores = !options.exact()};
}

struct CompileSettings {
  CompileSettings() = default;
  explicit CompileSettings(const Options& options)
      : passes(&options.passes()),
        optimize(options.optimize()),
        frozen(options.frozen()),
        limits{.is_exact = options.exact(),
               .packs_weights = options.pack_weights() && !options.exact(),
               .times_choices = options.time_choices() && !options.exact(),
               .pages_out_weights = options.page_out_weights()},
        prepares_steps(options.optimize()),
        min_differentiable_nodes(options.exact() ? 0 : options.min_differentiable_nodes()),
        compile(options.compile()),
        cuda_graphs(options.optimize() && options.cuda_graphs()),
        thread_limit(thread_limit_of(options)) {}

  std::string name;                            // of the method or function
  Callees* callees = nullptr;                  // runs calls that are not inlined; outlives the plan
  FunctionTable* functions = nullptr;          // inlines calls of these functions; null: inlines none
  const ModuleConstants* constants = nullptr;  // constants of the method's module, to freeze it
  const PassPipeline* passes = nullptr;        // the user's passes, and which are disabled
  bool optimize = false;                       // else runs the required passes only
  bool frozen = false;  // the module is frozen: passes may compute with its constants, at the price of rounding
  KernelLimits limits;
  bool prepares_steps = false;                     // operators that have kernels run by prepared steps (plan/prepared/)
  size_t min_differentiable_nodes = 0;             // in a differentiable subgraph; 0: none is made
  CompileMode compile = CompileMode::kBackground;  // kernels: in the background, before the first run, or none
  bool cuda_graphs = false;                        // ranges of steps are recorded and replayed, on devices that can
  IntraOpLimit thread_limit;
};

// Compiles a method: inline, freeze, required passes, optimizing passes, lower. Refuses what cannot be inlined or lowered.
Expected<CompiledMethod> compile_method(std::unique_ptr<Graph> graph, const CompileSettings& settings = {});

// Sets what is known about a graph's inputs and attributes, and returns the rest of it.
using AssumeInputs = std::function<InputAssumptions(Graph& graph)>;

// Compiles a plan for the runs in which the assumptions hold. `general`: the graph of the generic plan. Propagates facts,
// runs the optimizing passes once more, and lowers; passes of the user's at Stage::kSpecialize run before and after. The
// plan is null if all this changes no node.
Expected<CompiledMethod> compile_specialized(const Graph& general, const AssumeInputs& assume,
                                             const CompileSettings& settings);

// The symbols in the facts of a trace's inputs, each of which is at least 2.
struct TraceSizes {
  // Returns all symbols, of which a tracer makes the first inputs of its graph.
  static TraceSizes of(const SymbolicSizes& sizes);

  size_t first = 0;                               // the position of the first symbol among the graph's inputs
  std::vector<int64_t> inputs;                    // integers, one after the other: these symbols
  std::unordered_map<int64_t, int64_t> examples;  // symbol -> a size that it stood for
};

// How the plan of a trace differs from others.
struct TraceSettings {
  TraceSizes sizes = {};
  // LoweringOptions. By default, no output is reused: a leaf takes a gradient as it is, without a copy, if nothing else
  // holds it.
  std::optional<size_t> fresh_outputs = {};
  // Changes the graph after all passes. Null if nothing does.
  using Complete = std::function<void(Graph& graph, bool has_kernels, PassRunner& runner)>;
  Complete complete = {};
};

// Compiles a graph that a tracer wrote. What is known of its inputs, the facts say; it runs without autograd and autocast.
Expected<CompiledMethod> compile_trace(std::unique_ptr<Graph> graph, const TraceSettings& trace,
                                       const CompileSettings& settings);

// ---- the stages, for tools and tests that stop in between -----------------------------------------------------------

// Takes the name of a stage and the graph that it left: "load", "inline", "freeze", "required" and "optimize", in this
// order, where the settings ask for them. Returns whether to go on.
using StageCallback = std::function<bool(std::string_view stage, const Graph& graph)>;

// Runs the stages of compile_method before lowering. Returns the passes that failed.
Expected<std::vector<RefusalExplanation>> show_stages(std::unique_ptr<Graph> graph, const CompileSettings& settings,
                                                      const StageCallback& show);

// Compiles a plan whose steps read sizes as c10::SymInt where they are such, of a graph that the passes have processed.
Expected<std::unique_ptr<Plan>> compile_symbolic(const std::shared_ptr<const Graph>& graph, Callees* callees);

// A plan of a graph that the passes have processed. Each of its runs fills a profile.
struct Profiled {
  std::unique_ptr<Profile> profile;  // outlives the plan
  std::unique_ptr<Plan> plan;
};
Expected<Profiled> compile_profiled(const std::shared_ptr<const Graph>& graph, Callees* callees = nullptr);

}  // namespace sconce
