#include "executor/compile.h"

#include "autodiff/differentiate.h"
#include "fusion/form_groups.h"
#include "fusion/group_kernel.h"
#include "fusion/kernel_width.h"
#include "fusion/operators.h"
#include "ir/differentiable.h"
#include "ir/dump.h"
#include "ir/kernel_node.h"
#include "ir/verify/verify.h"
#include "lower/lower.h"
#include "passes/autocast/lower_callers_autocast.h"
#include "passes/autocast/settle_autocast.h"
#include "passes/facts/refine_optional_tensors.h"
#include "passes/freeze/fold_batch_norm.h"
#include "passes/freeze/freeze.h"
#include "passes/layout/propagate_channels_last.h"
#include "passes/layout/remove_layout_changes.h"
#include "passes/loops/accumulate_selections.h"
#include "passes/loops/batch_loop_products.h"
#include "passes/loops/hoist_loop_invariants.h"
#include "passes/loops/unroll_loops.h"
#include "passes/matmul/decompose_rnn.h"
#include "passes/matmul/decompose_rnn_cells.h"
#include "passes/memory/remove_dead_copies.h"
#include "passes/memory/remove_list_mutation.h"
#include "passes/memory/remove_tensor_mutation.h"
#include "passes/required/canonicalize_ops.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/required/inline_calls.h"
#include "passes/required/lower_autocast.h"
#include "passes/required/lower_grad_of.h"
#include "passes/required/remove_expands.h"
#include "passes/required/specialize_autograd_zero.h"
#include "passes/simplify/check_inplace.h"
#include "passes/simplify/eliminate_common_nodes.h"
#include "passes/simplify/pool_constants.h"
#include "passes/simplify/simplify.h"
#include "pipeline/pass_runner.h"

#include <algorithm>
#include <chrono>

namespace sconce {

// The order within a stage matters: pass_order.h has the reasons, and a test compares.
namespace {

// The stages that take no passes of the user's.
constexpr const char* kInlineStage = "inline";
constexpr const char* kFreezeStage = "freeze";

void required_passes(Graph& graph, PassRunner& runner) {
  runner.run("specialize_autograd_zero", specialize_autograd_zero, graph);
  runner.run("lower_grad_of", lower_grad_of, graph);
  runner.run("remove_expands", remove_expands, graph);
  runner.run("canonicalize_ops", canonicalize_ops, graph);
  runner.run("lower_autocast", lower_autocast, graph);
  runner.run("eliminate_dead_nodes", eliminate_dead_nodes, graph);
}

RunPass timed_by(PassRunner& runner) {
  return [&runner](std::string_view name, const PassCallback& pass, Graph& graph) { return runner.run(name, pass, graph); };
}

void optimizing_passes(Graph& graph, PassRunner& runner, bool frozen) {
  simplify(graph, timed_by(runner));
  // Folds those that freeze_method could not, because ranks were not known.
  if (frozen) {
    runner.run("fold_batch_norm", fold_batch_norm, graph);
  }
  // After unrolling, loop bodies depend on constants: the numbers of iterations.
  if (runner.run("unroll_loops", unroll_loops, graph)) {
    simplify(graph, timed_by(runner));
  }
  // Lengths and elements of lists are known then.
  if (runner.run("remove_list_mutation", remove_list_mutation, graph)) {
    simplify(graph, timed_by(runner));
  }
  runner.run("remove_dead_copies", remove_dead_copies, graph);
  runner.run("remove_layout_changes", remove_layout_changes, graph);
  // Here too, because nodes are equal only if their operands are. Only in frozen modules: merged casts (autocast) would add
  // up their gradients in the lower precision.
  if (frozen) {
    runner.run("pool_constants", pool_constants, graph);
  }
  runner.run("eliminate_common_nodes", eliminate_common_nodes, graph);
  runner.run("hoist_loop_invariants", hoist_loop_invariants, graph);
  runner.run("eliminate_dead_nodes", eliminate_dead_nodes, graph);
  // Converts what freeze_method could not, because lists that are built step by step were not known then.
  if (frozen) {
    runner.run("propagate_channels_last", propagate_channels_last, graph);
  }
  runner.run("pool_constants", pool_constants, graph);
  runner.run("check_inplace", check_inplace, graph);
}

// Optimizes a graph that runs without autograd.
void subgraph_passes(Graph& graph, PassRunner& runner) {
  runner.run(
      "propagate_facts", [](Graph& known) { return propagate_facts(known, {.grad_mode = false}, KnownNumbers::kFold); },
      graph);
  optimizing_passes(graph, runner, /*frozen=*/false);
}

void backward_passes(Graph& backward, bool exact, PassRunner& runner) {
  runner.run("accumulate_selections", accumulate_selections, backward);
  if (!exact) {
    runner.run("batch_loop_products", batch_loop_products, backward);
  }
  subgraph_passes(backward, runner);
}

// Makes kernel nodes, in the very form of the graph that a plan runs.
void fuse_passes(std::shared_ptr<Graph>& graph, GroupMoves moves, bool has_kernels, PassRunner& runner) {
  runner.run_custom(Stage::kFuse, /*after=*/false, graph);
  if (has_kernels) {
    runner.run("form_groups", [moves](Graph& whole) { return form_groups(whole, moves); }, *graph);
  }
  runner.run_custom(Stage::kFuse, /*after=*/true, graph);
}

// Makes differentiable subgraphs, and optimizes the graphs that their plans run.
GradientExplanation differentiable_passes(Graph& graph, const InputAssumptions& given, size_t min_nodes, bool exact,
                                          PassRunner& runner) {
  GradientExplanation explanation;
  // Merged nodes decide more branches: each one that stays would end a subgraph.
  simplify(graph, timed_by(runner), /*max_iterations=*/1);
  // The passes before have made nodes without facts.
  runner.run("propagate_facts", [&given](Graph& known) { return propagate_facts(known, given); }, graph);
  runner.run("check_inplace", check_inplace, graph);
  const RunPass run_part = [&runner](std::string_view name, const PassCallback& pass, Graph& joint) {
    runner.begin_stage("joint graph");
    const bool changed = runner.run_part(name, pass, joint);
    runner.begin_stage(to_string(Stage::kSpecialize));
    return changed;
  };
  runner.run("differentiate", [&](Graph& whole) { return differentiate(whole, min_nodes, &explanation, run_part); }, graph);
  for_each_differentiable(graph, [&](Node& node) {
    runner.begin_stage("forward");
    subgraph_passes(*node.attribute_as<std::shared_ptr<Graph>>(attr::kSubgraph), runner);
    runner.begin_stage("backward");
    backward_passes(*node.attribute_as<std::shared_ptr<Graph>>(attr::kBackward), exact, runner);
  });
  return explanation;
}

// Removes nodes that the user's passes made dead: they would run in every call.
void remove_dead_code(Graph& graph, PassRunner& runner) {
  runner.run("eliminate_dead_nodes", eliminate_dead_nodes, graph);
  runner.run("pool_constants", pool_constants, graph);
}

}  // namespace

Expected<PassTiming> inline_and_simplify(Graph& graph, FunctionTable& functions, const PassPipeline& passes, bool optimize) {
  const auto start = std::chrono::steady_clock::now();
  PassRunner runner(passes);
  std::function<void(Graph&)> simplify_function;
  if (optimize) {
    // Once: it leaves little, which is settled with what the callers know.
    simplify_function = [&](Graph& body) {
      simplify(body, timed_by(runner), /*max_iterations=*/1);
      runner.run("eliminate_dead_nodes", eliminate_dead_nodes, body);
    };
  }
  const auto changed = inline_calls(graph, functions, simplify_function);
  if (!changed) {
    return changed.refusal();
  }
#ifdef SCONCE_DEBUG
  verify(graph, "inline_calls");
#endif
  return PassTiming{"inline_calls", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), *changed,
                    kInlineStage};
}

void freeze_method(Graph& method, const ModuleConstants& constants, bool optimize, PassRunner& runner) {
  runner.begin_stage(kFreezeStage);
  runner.run("freeze", [&](Graph& graph) { return freeze(graph, constants); }, method);
  if (optimize) {
    simplify(method, timed_by(runner));
    runner.run("fold_batch_norm", fold_batch_norm, method);
    runner.run("pool_constants", pool_constants, method);
    runner.run("eliminate_common_nodes", eliminate_common_nodes, method);
    // Here, so that all plans share the converted weights.
    runner.run("propagate_channels_last", propagate_channels_last, method);
    runner.run("eliminate_dead_nodes", eliminate_dead_nodes, method);
  }
}

void run_stage(Stage stage, std::unique_ptr<Graph>& graph, PassRunner& runner, bool frozen) {
  runner.begin_stage(to_string(stage));
  runner.run_custom(stage, /*after=*/false, graph);
  switch (stage) {
    case Stage::kRequired: required_passes(*graph, runner); break;
    case Stage::kOptimize: optimizing_passes(*graph, runner, frozen); break;
    case Stage::kFuse: runner.run(*find_pass("form_groups"), *graph); break;
    case Stage::kSpecialize:
    case Stage::kOnRequest: break;
  }
  if (runner.run_custom(stage, /*after=*/true, graph) && stage == Stage::kOptimize) {
    remove_dead_code(*graph, runner);
  }
}

namespace {

using Clock = std::chrono::steady_clock;

const PassPipeline& pipeline_of(const CompileSettings& settings) {
  static const PassPipeline none;
  return settings.passes != nullptr ? *settings.passes : none;
}

// Returns what makes kernels for plans; null if nothing does.
const GroupCompiler* kernels_for(const CompileSettings& settings) {
  const bool has_none = settings.compile == CompileMode::kNever || !settings.prepares_steps || !why_no_kernels().empty();
  return has_none ? nullptr : settings.compile == CompileMode::kBlocking ? &blocking_kernels() : &background_kernels();
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
std::shared_ptr<const std::function<void(std::shared_ptr<Graph>&)>> later_backward_passes(const CompileSettings& settings) {
  if (settings.min_differentiable_nodes == 0) {
    return nullptr;
  }
  return std::make_shared<const std::function<void(std::shared_ptr<Graph>&)>>(
      [passes = settings.passes != nullptr ? *settings.passes : PassPipeline(), exact = settings.exact,
       has_kernels = kernels_for(settings) != nullptr](std::shared_ptr<Graph>& backward) {
        PassRunner runner(passes);
        backward_passes(*backward, exact, runner);
        fuse_passes(backward, GroupMoves::kOperators, has_kernels, runner);
      });
}

// Lowers the graph that the passes have left, and adds up what the compile did.
// `records`: autograd may record what the graph's operators compute.
Expected<CompiledMethod> finish(CompiledMethod compiled, std::shared_ptr<Graph> graph, bool records, PassRunner& runner,
                                const CompileSettings& settings, Clock::time_point start) {
  const bool has_kernels = kernels_for(settings) != nullptr;
  runner.begin_stage(to_string(Stage::kFuse));
  for_each_differentiable(*graph, [&](Node& node) {
    for (const c10::Symbol name : {attr::kSubgraph, attr::kBackward}) {
      auto own = node.attribute_as<std::shared_ptr<Graph>>(name);
      fuse_passes(own, GroupMoves::kOperators, has_kernels, runner);
      node.set_attribute(name, std::move(own));
    }
  });
  fuse_passes(graph, records ? GroupMoves::kNone : GroupMoves::kOperators, has_kernels, runner);
  const LoweringOptions form{.is_prepared = settings.prepares_steps,
                             .is_exact = settings.exact,
                             .fresh_outputs = 0,
                             .groups = kernels_for(settings),
                             .optimize_backward = later_backward_passes(settings)};
  auto plan = lower(std::move(graph), settings.callees, nullptr, form);
  if (!plan) {
    return plan.refusal();
  }
  compiled.plan = std::move(*plan);
  compiled.plan->set_name(settings.name);
  compiled.passes.insert(compiled.passes.end(), runner.timings().begin(), runner.timings().end());
  compiled.refusals.insert(compiled.refusals.end(), runner.refusals().begin(), runner.refusals().end());
  compiled.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return compiled;
}

// Runs the stages before lowering, and tells `show` of each. Returns the optimized graph; null if `show` ended it.
Expected<std::unique_ptr<Graph>> run_stages(std::unique_ptr<Graph> graph, const CompileSettings& settings, PassRunner& runner,
                                            CompiledMethod& compiled, const StageCallback& show) {
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
  CompiledMethod compiled;
  PassRunner runner(pipeline_of(settings));
  auto optimized = run_stages(std::move(graph), settings, runner, compiled, [](std::string_view, const Graph&) { return true; });
  if (!optimized) {
    return optimized.refusal();
  }
  if (const std::string reason = why_no_kernels(); !reason.empty() && settings.compile != CompileMode::kNever) {
    compiled.refusals.push_back({"compiled kernels", reason, {}, {}});
  }
  return finish(std::move(compiled), std::move(*optimized), /*records=*/true, runner, settings, start);
}

Expected<std::vector<RefusalExplanation>> show_stages(std::unique_ptr<Graph> graph, const CompileSettings& settings,
                                                      const StageCallback& show) {
  CompiledMethod compiled;
  PassRunner runner(pipeline_of(settings));
  const auto optimized = run_stages(std::move(graph), settings, runner, compiled, show);
  if (!optimized) {
    return optimized.refusal();
  }
  return runner.refusals();
}

Expected<CompiledMethod> compile_specialized(const Graph& general, const AssumeInputs& assume,
                                             const CompileSettings& settings) {
  const auto start = Clock::now();
  PassRunner runner(pipeline_of(settings));
  runner.begin_stage(to_string(Stage::kSpecialize));
  std::unique_ptr<Graph> graph = general.clone();
  dissolve_kernel_nodes(*graph);
  bool changed = runner.run_custom(Stage::kSpecialize, /*after=*/false, graph);
  const InputAssumptions given = assume(*graph);
  CompiledMethod compiled;
  // LibTorch's recurrent layers record less than the operators of a loop without differentiable subgraphs.
  const bool records = given.grad_mode == true && given.any_requires_grad;
  const bool decomposes = settings.optimize && !settings.exact && (!records || settings.min_differentiable_nodes > 0);
  runner.run("refine_optional_tensors", [&given](Graph& known) { return refine_optional_tensors(known, given); }, *graph);
  if (given.autocast) {
    // First: cells are made of operators whose operands autocast casts. Layers run with autocast on.
    if (decomposes) {
      runner.run("decompose_rnn_cells", decompose_rnn_cells, *graph);
    }
    runner.run(
        "lower_callers_autocast", [&given](Graph& known) { return lower_callers_autocast(known, *given.autocast); }, *graph);
  }
  const auto derive_facts = [&] {
    runner.run(
        "propagate_facts", [&given](Graph& known) { return propagate_facts(known, given, KnownNumbers::kFold); }, *graph);
  };
  derive_facts();
  if (given.autocast) {
    if (settings.optimize) {
      simplify(*graph, timed_by(runner));  // decides which optional operands are None
    }
    if (runner.run(
            "lower_known_operands", [&given](Graph& known) { return lower_known_operands(known, *given.autocast); },
            *graph)) {
      derive_facts();
    }
    runner.run("settle_autocast", [&given](Graph& known) { return settle_autocast(known, *given.autocast); }, *graph);
  }
  const size_t passes_before = runner.timings().size();
  if (settings.optimize) {
    simplify(*graph, timed_by(runner));
    // Kernels can compute what functional operators compute, step by step, and gradients flow through those.
    runner.run("remove_tensor_mutation", remove_tensor_mutation, *graph);
    if (decomposes && !given.autocast) {
      runner.run("decompose_rnn", [records](Graph& known) { return decompose_rnn(known, records); }, *graph);
      runner.run("decompose_rnn_cells", decompose_rnn_cells, *graph);
    }
    optimizing_passes(*graph, runner, settings.frozen);
    if (records && settings.min_differentiable_nodes > 0) {
      compiled.gradients = differentiable_passes(*graph, given, settings.min_differentiable_nodes, settings.exact, runner);
    }
  }
  const auto& passes = runner.timings();
  changed |= std::any_of(passes.begin() + static_cast<std::ptrdiff_t>(passes_before), passes.end(),
                         [](const PassTiming& pass) { return pass.changed; });
  if (runner.run_custom(Stage::kSpecialize, /*after=*/true, graph)) {
    changed = true;
    remove_dead_code(*graph, runner);
  }
  // The generic plan serves the caller's autocast with unprepared steps.
  changed = changed || given.autocast.has_value();
  changed = changed || (kernels_for(settings) != nullptr && has_compiled_cast(*graph));
  if (!changed) {
    compiled.refusals = runner.refusals();
    return compiled;
  }
  auto finished = finish(std::move(compiled), std::move(graph), given.grad_mode != false && given.any_requires_grad, runner,
                         settings, start);
  if (finished && given.autocast) {
    finished->plan->set_excludes_autocast();
  }
  return finished;
}

Expected<Profiled> compile_profiled(const std::shared_ptr<const Graph>& graph, Callees* callees) {
  Profiled profiled;
  std::shared_ptr<Graph> own = graph->clone();
  dissolve_kernel_nodes(*own);
  profiled.profile = std::make_unique<Profile>(own);
  auto plan = lower(own, callees, profiled.profile.get());
  if (!plan) {
    return plan.refusal();
  }
  profiled.plan = std::move(*plan);
  return profiled;
}

}  // namespace sconce
