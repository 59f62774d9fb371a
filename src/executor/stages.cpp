#include "executor/stages.h"

#include "analysis/node_devices.h"
#include "autodiff/differentiate.h"
#include "fusion/group/join_clamps.h"
#include "ir/differentiable.h"
#include "ir/verify/verify.h"
#include "passes/autocast/lower_callers_autocast.h"
#include "passes/autocast/settle_autocast.h"
#include "passes/captures/form_captures.h"
#include "passes/facts/refine_optional_tensors.h"
#include "passes/freeze/fold_batch_norm.h"
#include "passes/freeze/freeze.h"
#include "passes/layout/propagate_channels_last.h"
#include "passes/layout/remove_layout_changes.h"
#include "passes/loops/accumulate_selections.h"
#include "passes/loops/batch_loop_products.h"
#include "passes/loops/hoist_loop_invariants.h"
#include "passes/loops/unroll_loops.h"
#include "passes/matmul/decompose_attention.h"
#include "passes/matmul/decompose_convolution_gradients.h"
#include "passes/matmul/decompose_pointwise_gradients.h"
#include "passes/matmul/decompose_recorded_lstm.h"
#include "passes/matmul/decompose_rnn.h"
#include "passes/matmul/decompose_rnn_cells.h"
#include "passes/matmul/join_summed_products.h"
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
#include "passes/simplify/hoist_attribute_reads.h"
#include "passes/simplify/keep_errors.h"
#include "passes/simplify/pool_constants.h"
#include "passes/simplify/simplify.h"

#include <chrono>
#include <functional>

namespace sconce {
namespace {

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

// `channels_last`: convolutions may compute channels-last.
void optimizing_passes(Graph& graph, PassRunner& runner, bool frozen, bool channels_last) {
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
  runner.run("pool_constants", pool_constants, graph);
  // Converts what freeze_method could not, because lists that are built step by step were not known then.
  if (channels_last) {
    runner.run("propagate_channels_last", propagate_channels_last, graph);
  }
  runner.run("check_inplace", check_inplace, graph);
}

// Optimizes a graph that runs without autograd.
void subgraph_passes(Graph& graph, PassRunner& runner) {
  runner.run(
      "propagate_facts", [](Graph& known) { return propagate_facts(known, {.grad_mode = false}, KnownNumbers::kFold); },
      graph);
  optimizing_passes(graph, runner, /*frozen=*/false, /*channels_last=*/false);
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

// Makes the caller's autocast explicit. Facts of operands decide some casts, and casts change facts: `derive_facts` runs
// before and in between.
void autocast_passes(Graph& graph, const CallersAutocast& autocast, bool optimize, const std::function<void()>& derive_facts,
                     PassRunner& runner) {
  runner.run("lower_callers_autocast", [&](Graph& whole) { return lower_callers_autocast(whole, autocast); }, graph);
  derive_facts();
  if (optimize) {
    simplify(graph, timed_by(runner));  // decides which optional operands are None
  }
  if (runner.run("lower_known_operands", [&](Graph& whole) { return lower_known_operands(whole, autocast); }, graph)) {
    derive_facts();
  }
  runner.run("settle_autocast", [&](Graph& whole) { return settle_autocast(whole, autocast); }, graph);
}

}  // namespace

size_t specializing_passes(Graph& graph, const InputAssumptions& given, const CompileSettings& settings,
                           std::optional<GradientExplanation>& gradients, PassRunner& runner) {
  // LibTorch's recurrent layers record less than the operators of a loop without differentiable subgraphs.
  const bool records = given.grad_mode == true && given.any_requires_grad;
  const bool decomposes =
      settings.optimize && !settings.limits.is_exact && (!records || settings.min_differentiable_nodes > 0);
  const auto derive_facts = [&] {
    runner.run(
        "propagate_facts",
        [&given](Graph& known) {
          return keep_errors(known, [&] { return propagate_facts(known, given, KnownNumbers::kFold); });
        },
        graph);
  };
  runner.run("refine_optional_tensors", [&given](Graph& known) { return refine_optional_tensors(known, given); }, graph);
  if (given.autocast) {
    // Cells are made of operators whose operands autocast casts. Layers run with autocast on.
    if (decomposes) {
      runner.run("decompose_rnn_cells", decompose_rnn_cells, graph);
    }
    autocast_passes(graph, *given.autocast, settings.optimize, derive_facts, runner);
  } else {
    derive_facts();
  }
  const size_t first = runner.timings().size();
  if (settings.optimize) {
    simplify(graph, timed_by(runner));
    // Kernels can compute what functional operators compute, step by step, and gradients flow through those.
    runner.run("remove_tensor_mutation", remove_tensor_mutation, graph);
    if (decomposes && !given.autocast) {
      if (!records) {
        runner.run("decompose_attention", decompose_attention, graph);
        bool has_products = runner.run("decompose_pointwise_gradients", decompose_pointwise_gradients, graph);
        has_products |= runner.run("decompose_convolution_gradients", decompose_convolution_gradients, graph);
        has_products |= runner.run("decompose_recorded_lstm", decompose_recorded_lstm, graph);
        if (has_products) {  // known sizes decide which ones
          derive_facts();
          simplify(graph, timed_by(runner));
        }
      }
      runner.run("decompose_rnn", [records](Graph& known) { return decompose_rnn(known, records); }, graph);
      runner.run("decompose_rnn_cells", decompose_rnn_cells, graph);
    }
    // In training, weights in another layout gain nothing.
    optimizing_passes(graph, runner, settings.frozen, settings.frozen || (!records && settings.limits.packs_weights));
    // Recorded steps have such sums.
    if (!records && !settings.limits.is_exact && runner.run("join_summed_products", join_summed_products, graph)) {
      runner.run("eliminate_dead_nodes", eliminate_dead_nodes, graph);
    }
    if (records && settings.min_differentiable_nodes > 0) {
      gradients = differentiable_passes(graph, given, settings.min_differentiable_nodes, settings.limits.is_exact, runner);
    }
  }
  return first;
}

void backward_passes(Graph& backward, bool exact, PassRunner& runner) {
  if (!exact) {
    runner.run("decompose_pointwise_gradients", decompose_pointwise_gradients, backward);
  }
  runner.run("accumulate_selections", accumulate_selections, backward);
  if (!exact) {
    runner.run("batch_loop_products", batch_loop_products, backward);
  }
  subgraph_passes(backward, runner);
}

void fuse_passes(std::shared_ptr<Graph>& graph, GroupMoves moves, bool has_kernels, bool packs_weights, PassRunner& runner) {
  runner.run_custom(Stage::kFuse, /*after=*/false, graph);
  if (has_kernels) {
    runner.run("hoist_attribute_reads", hoist_attribute_reads, *graph);
    runner.run("form_groups", [moves](Graph& whole) { return form_groups(whole, moves); }, *graph);
    if (packs_weights) {
      runner.run("join_clamps", join_clamps, *graph);
    }
  }
  runner.run_custom(Stage::kFuse, /*after=*/true, graph);
}

void record_passes(Graph& graph, bool cuda_graphs, PassRunner& runner) {
  if (!cuda_graphs) {
    return;
  }
  if (!main_device_of(graph).is_cpu()) {
    // Updates of parameters, and what other late passes made, have no facts.
    runner.run("propagate_facts", [](Graph& known) { return propagate_facts(known, InputAssumptions()); }, graph);
  }
  runner.run("form_captures", form_captures, graph);
}

void remove_dead_code(Graph& graph, PassRunner& runner) {
  runner.run("eliminate_dead_nodes", eliminate_dead_nodes, graph);
  runner.run("pool_constants", pool_constants, graph);
}

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
  return PassTiming{"inline_calls", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                    *changed, kInlineStage};
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
    case Stage::kOptimize: optimizing_passes(*graph, runner, frozen, frozen); break;
    case Stage::kFuse:
      runner.run(*find_pass("hoist_attribute_reads"), *graph);
      runner.run(*find_pass("form_groups"), *graph);
      runner.run(*find_pass("join_clamps"), *graph);
      runner.run(*find_pass("form_captures"), *graph);
      break;
    case Stage::kSpecialize:
    case Stage::kOnRequest: break;
  }
  if (runner.run_custom(stage, /*after=*/true, graph) && stage == Stage::kOptimize) {
    remove_dead_code(*graph, runner);
  }
}

}  // namespace sconce
