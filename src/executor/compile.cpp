#include "executor/compile.h"

#include "analysis/node_devices.h"
#include "autodiff/differentiate.h"
#include "base/log.h"
#include "executor/stages.h"
#include "fusion/group/form_groups.h"
#include "fusion/kernels_on_device.h"
#include "fusion/program/operators.h"
#include "ir/captured.h"
#include "ir/differentiable.h"
#include "ir/dump.h"
#include "ir/kernel_node.h"
#include "lower/lower.h"
#include "passes/freeze/freeze.h"
#include "passes/layout/remove_layout_changes.h"
#include "trace/tracer.h"

#include <algorithm>
#include <chrono>

namespace sconce {
namespace {

using Clock = std::chrono::steady_clock;

const PassPipeline& pipeline_of(const CompileSettings& settings) {
  static const auto& none = *new PassPipeline;  // jobs may outlive static objects
  return settings.passes != nullptr ? *settings.passes : none;
}

// Returns what makes kernels for the graph's plan. Refuses, with the reason, if nothing does; without one if the settings
// ask for none.
Expected<const GroupCompiler*> kernels_for(const Graph& graph, const CompileSettings& settings) {
  if (settings.compile == CompileMode::kNever || !settings.prepares_steps) {
    return Refusal::because({});
  }
  return kernels_on(main_device_of(graph), settings.compile == CompileMode::kBlocking);
}

// Returns whether the graph may write tensors through `data`, where LibTorch does not count the writes.
bool reads_data(const Graph& graph) {
  static const c10::Symbol prim_data = c10::Symbol::fromQualString("prim::data");
  bool reads = false;
  for_each_node(graph.body(),
                [&](const Node* node) { reads = reads || node->kind() == aten::data || node->kind() == prim_data; });
  return reads;
}

// Returns whether kernels compute a cast: they do if facts know that the operand has another dtype.
bool has_compiled_cast(const Graph& graph) {
  bool has_one = false;
  for_each_node(graph.body(), [&](const Node* node) {
    has_one = has_one || (casts_to_other_dtype(*node) && role_in_group(*node) != GroupRole::kNone);
  });
  return has_one;
}

// Returns the passes of a backward graph that a run asks for, perhaps after the executor was destroyed.
std::shared_ptr<const std::function<void(std::shared_ptr<Graph>&)>> later_backward_passes(const CompileSettings& settings,
                                                                                          bool has_kernels) {
  if (settings.min_differentiable_nodes == 0) {
    return nullptr;
  }
  return std::make_shared<const std::function<void(std::shared_ptr<Graph>&)>>(
      [passes = settings.passes != nullptr ? *settings.passes : PassPipeline(), exact = settings.limits.is_exact,
       cuda_graphs = settings.cuda_graphs, has_kernels](std::shared_ptr<Graph>& backward) {
        PassRunner runner(passes);
        backward_passes(*backward, exact, runner);
        fuse_passes(backward, GroupMoves::kOperators, has_kernels, /*packs_weights=*/false, runner);
        record_passes(*backward, cuda_graphs, runner);
      });
}

struct FinishSettings {
  bool records = true;                      // autograd may record what the graph's operators compute
  std::optional<size_t> fresh_outputs = 0;  // LoweringOptions
  TraceSettings::Complete complete = {};
};

// Returns the runner's refusals, after it told the program of each.
const std::vector<RefusalExplanation>& logged_failures(const PassRunner& runner) {
  for (const RefusalExplanation& refusal : runner.refusals()) {
    log_once(LogLevel::kWarning, refusal.what + ": " + refusal.reason);
  }
  return runner.refusals();
}

// Lowers the graph that the passes have left, and adds up what the compile did.
Expected<CompiledMethod> finish(CompiledMethod compiled, std::shared_ptr<Graph> graph, const FinishSettings& finishing,
                                PassRunner& runner, const CompileSettings& settings, Clock::time_point start) {
  const bool records = finishing.records;
  const auto kernels = kernels_for(*graph, settings);
  const bool has_kernels = static_cast<bool>(kernels);
  if (!has_kernels && !kernels.refusal().reason.empty()) {
    compiled.refusals.push_back({"compiled kernels", kernels.refusal().reason, {}, {}});
  }
  runner.begin_stage(to_string(Stage::kFuse));
  for_each_differentiable(*graph, [&](Node& node) {
    for (const c10::Symbol name : {attr::kSubgraph, attr::kBackward}) {
      auto own = node.attribute_as<std::shared_ptr<Graph>>(name);
      fuse_passes(own, GroupMoves::kOperators, has_kernels, /*packs_weights=*/false, runner);
      record_passes(*own, settings.cuda_graphs, runner);
      node.set_attribute(name, std::move(own));
    }
  });
  KernelLimits limits = settings.limits;
  limits.packs_weights = limits.packs_weights && !reads_data(*graph);
  fuse_passes(graph, records ? GroupMoves::kNone : GroupMoves::kOperators, has_kernels, limits.packs_weights && !records,
              runner);
  if (finishing.complete) {
    finishing.complete(*graph, has_kernels, runner);
  }
  record_passes(*graph, settings.cuda_graphs && !records, runner);
  const LoweringOptions form{.is_prepared = settings.prepares_steps,
                             .limits = limits,
                             .thread_limit = settings.thread_limit,
                             .fresh_outputs = finishing.fresh_outputs,
                             .groups = has_kernels ? *kernels : nullptr,
                             .optimize_backward = later_backward_passes(settings, has_kernels)};
  auto plan = lower(std::move(graph), settings.callees, nullptr, form);
  if (!plan) {
    return plan.refusal();
  }
  compiled.plan = std::move(*plan);
  compiled.plan->set_name(settings.name);
  compiled.passes.insert(compiled.passes.end(), runner.timings().begin(), runner.timings().end());
  const auto& failures = logged_failures(runner);
  compiled.refusals.insert(compiled.refusals.end(), failures.begin(), failures.end());
  compiled.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return compiled;
}

// Takes apart the nodes that passes make for a plan. Passes before fusion do not keep what kernel_node.h says of names in a
// block: in `add_(%mean)`, `mul(%mean.2)` they may replace `%mean.2`, another read of the attribute, by `%mean`.
void dissolve_groups(Graph& graph) {
  dissolve_captured_nodes(graph);
  dissolve_kernel_nodes(graph);
}

std::unique_ptr<Graph> copy_of_operators(const Graph& graph) {
  std::unique_ptr<Graph> copy = graph.clone();
  dissolve_groups(*copy);
  return copy;
}

// Runs the stages before lowering, and tells `show` of each. Returns the optimized graph; null if `show` ended it.
Expected<std::unique_ptr<Graph>> run_stages(std::unique_ptr<Graph> graph, const CompileSettings& settings,
                                            PassRunner& runner, CompiledMethod& compiled, const StageCallback& show) {
  dissolve_groups(*graph);  // of a graph that comes from another plan
  if (!show("load", *graph)) {
    return std::unique_ptr<Graph>();
  }
  if (settings.functions != nullptr) {
    auto inlined = inline_and_simplify(*graph, *settings.functions, pipeline_of(settings), settings.optimize);
    if (!inlined) {
      return inlined.refusal();
    }
    compiled.passes.push_back(std::move(*inlined));
    if (!show(kInlineStage, *graph)) {
      return std::unique_ptr<Graph>();
    }
  }
  if (settings.constants != nullptr) {
    freeze_method(*graph, *settings.constants, settings.optimize, runner);
    compiled.refusals = attributes_not_frozen(*graph, *settings.constants);
    if (!show(kFreezeStage, *graph)) {
      return std::unique_ptr<Graph>();
    }
  }
  // Every plan begins with a copy of this graph.
  std::unique_ptr<Graph> copy = graph->clone();
  compiled.graph = std::move(graph);
  for (const Stage stage : {Stage::kRequired, Stage::kOptimize}) {
    if (stage == Stage::kRequired || settings.optimize) {
      run_stage(stage, copy, runner, settings.frozen);
    }
    if (!show(to_string(stage), *copy)) {
      return std::unique_ptr<Graph>();
    }
  }
  return copy;
}

}  // namespace

Expected<CompiledMethod> compile_method(std::unique_ptr<Graph> graph, const CompileSettings& settings) {
  const auto start = Clock::now();
  const PausedTracing paused;
  CompiledMethod compiled;
  PassRunner runner(pipeline_of(settings));
  auto optimized =
      run_stages(std::move(graph), settings, runner, compiled, [](std::string_view, const Graph&) { return true; });
  if (!optimized) {
    return optimized.refusal();
  }
  return finish(std::move(compiled), std::move(*optimized), {}, runner, settings, start);
}

Expected<std::vector<RefusalExplanation>> show_stages(std::unique_ptr<Graph> graph, const CompileSettings& settings,
                                                      const StageCallback& show) {
  CompiledMethod compiled;
  PassRunner runner(pipeline_of(settings));
  const auto optimized = run_stages(std::move(graph), settings, runner, compiled, show);
  if (!optimized) {
    return optimized.refusal();
  }
  return logged_failures(runner);
}

Expected<CompiledMethod> compile_specialized(const Graph& general, const AssumeInputs& assume,
                                             const CompileSettings& settings) {
  const auto start = Clock::now();
  const PausedTracing paused;
  PassRunner runner(pipeline_of(settings));
  runner.begin_stage(to_string(Stage::kSpecialize));
  std::unique_ptr<Graph> graph = copy_of_operators(general);
  bool changed = runner.run_custom(Stage::kSpecialize, /*after=*/false, graph);
  const InputAssumptions given = assume(*graph);
  CompiledMethod compiled;
  const size_t first = specializing_passes(*graph, given, settings, compiled.gradients, runner);
  const auto& passes = runner.timings();
  changed |= std::any_of(passes.begin() + static_cast<std::ptrdiff_t>(first), passes.end(),
                         [](const PassTiming& pass) { return pass.changed; });
  if (runner.run_custom(Stage::kSpecialize, /*after=*/true, graph)) {
    changed = true;
    remove_dead_code(*graph, runner);
  }
  // The generic plan serves the caller's autocast with unprepared steps.
  changed = changed || given.autocast.has_value();
  changed = changed || (has_compiled_cast(*graph) && kernels_for(*graph, settings));
  changed = changed || (settings.cuda_graphs && !main_device_of(*graph).is_cpu());
  if (!changed) {
    compiled.refusals = logged_failures(runner);
    return compiled;
  }
  auto finished = finish(std::move(compiled), std::move(graph),
                         {.records = given.grad_mode != false && given.any_requires_grad}, runner, settings, start);
  if (finished && given.autocast) {
    finished->plan->set_excludes_autocast();
  }
  return finished;
}

TraceSizes TraceSizes::of(const SymbolicSizes& sizes) {
  TraceSizes all;
  for (size_t i = 0; i < sizes.values().size(); ++i) {
    all.inputs.push_back(static_cast<int64_t>(i + 1));
    all.examples.emplace(static_cast<int64_t>(i + 1), sizes.values()[i]);
  }
  return all;
}

Expected<CompiledMethod> compile_trace(std::unique_ptr<Graph> graph, const TraceSettings& trace,
                                       const CompileSettings& settings) {
  const auto start = Clock::now();
  const PausedTracing paused;
  PassRunner runner(pipeline_of(settings));
  run_stage(Stage::kRequired, graph, runner);
  runner.begin_stage(to_string(Stage::kSpecialize));
  runner.run_custom(Stage::kSpecialize, /*after=*/false, graph);
  CompiledMethod compiled;
  InputAssumptions given;
  given.grad_mode = false;
  given.no_symbol_is_one = true;
  given.examples = trace.sizes.examples;
  for (size_t i = 0; i < trace.sizes.inputs.size(); ++i) {
    given.values.emplace(graph->inputs()[trace.sizes.first + i], AbstractValue::integer(Dim::symbol(trace.sizes.inputs[i])));
  }
  specializing_passes(*graph, given, settings, compiled.gradients, runner);
  runner.run("remove_layout_changes", remove_layout_changes_of_outputs, *graph);
  if (runner.run_custom(Stage::kSpecialize, /*after=*/true, graph)) {
    remove_dead_code(*graph, runner);
  }
  auto finished =
      finish(std::move(compiled), std::move(graph),
             {.records = false, .fresh_outputs = trace.fresh_outputs, .complete = trace.complete}, runner, settings, start);
  if (finished) {
    finished->plan->set_excludes_autocast();
  }
  return finished;
}

Expected<std::unique_ptr<Plan>> compile_symbolic(const std::shared_ptr<const Graph>& graph, Callees* callees) {
  const PausedTracing paused;
  std::shared_ptr<Graph> own = copy_of_operators(*graph);
  return lower(std::move(own), callees, nullptr, {.has_symbolic_sizes = true});
}

Expected<Profiled> compile_profiled(const std::shared_ptr<const Graph>& graph, Callees* callees) {
  Profiled profiled;
  std::shared_ptr<Graph> own = copy_of_operators(*graph);
  profiled.profile = std::make_unique<Profile>(own);
  auto plan = lower(own, callees, profiled.profile.get());
  if (!plan) {
    return plan.refusal();
  }
  profiled.plan = std::move(*plan);
  return profiled;
}

}  // namespace sconce
