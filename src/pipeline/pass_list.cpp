#include "pipeline/pass_list.h"

#include "autodiff/differentiate.h"
#include "base/edit_distance.h"
#include "fusion/group/form_groups.h"
#include "fusion/group/join_clamps.h"
#include "passes/captures/form_captures.h"
#include "passes/freeze/fold_batch_norm.h"
#include "passes/layout/propagate_channels_last.h"
#include "passes/layout/remove_layout_changes.h"
#include "passes/loops/accumulate_selections.h"
#include "passes/loops/batch_loop_products.h"
#include "passes/loops/hoist_loop_invariants.h"
#include "passes/loops/partially_unroll_loops.h"
#include "passes/loops/unroll_loops.h"
#include "passes/matmul/batch_matmul.h"
#include "passes/matmul/decompose_attention.h"
#include "passes/matmul/decompose_convolution_gradients.h"
#include "passes/matmul/decompose_ops.h"
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
#include "passes/required/lower_autocast.h"
#include "passes/required/lower_grad_of.h"
#include "passes/required/remove_expands.h"
#include "passes/required/specialize_autograd_zero.h"
#include "passes/simplify/check_inplace.h"
#include "passes/simplify/eliminate_common_nodes.h"
#include "passes/simplify/fold_constant_branches.h"
#include "passes/simplify/hoist_attribute_reads.h"
#include "passes/simplify/lower_tuples.h"
#include "passes/simplify/peephole.h"
#include "passes/simplify/pool_constants.h"
#include "passes/simplify/propagate_constants.h"
#include "passes/simplify/propagate_facts.h"

#include <algorithm>
#include <array>

namespace sconce {
namespace {

constexpr std::array kPasses = {
    PassInfo{"accumulate_selections", accumulate_selections, Stage::kSpecialize,
             "adds up gradients of what a loop selects from a tensor in one tensor"},
    PassInfo{"batch_loop_products", batch_loop_products, Stage::kSpecialize,
             "multiplies once for several iterations of a loop that adds up products", /*changes_rounding=*/true},
    PassInfo{"batch_matmul", batch_matmul, Stage::kOnRequest, "computes several matrix products as one product",
             /*changes_rounding=*/true},
    PassInfo{"canonicalize_ops", canonicalize_ops, Stage::kRequired,
             "replaces synonyms of an operator by its canonical name"},
    PassInfo{"check_inplace", check_inplace, Stage::kOptimize, "fails if a folded constant is written"},
    PassInfo{"decompose_attention", decompose_attention, Stage::kSpecialize,
             "replaces LibTorch's fast paths of attention and encoder layers by products, norms and attention",
             /*changes_rounding=*/true},
    PassInfo{"decompose_convolution_gradients", decompose_convolution_gradients, Stage::kSpecialize,
             "computes gradients of large convolutions over few pixels by matrix products, in recorded steps",
             /*changes_rounding=*/true},
    PassInfo{"decompose_ops", decompose_ops, Stage::kOnRequest, "decomposes addmm and linear where batch_matmul gains",
             /*changes_rounding=*/true},
    PassInfo{"decompose_pointwise_gradients", decompose_pointwise_gradients, Stage::kSpecialize,
             "computes gradients of convolutions of single pixels by matrix products",
             /*changes_rounding=*/true},
    PassInfo{"decompose_recorded_lstm", decompose_recorded_lstm, Stage::kSpecialize,
             "computes an LSTM and its gradients by products and one kernel each, in recorded steps",
             /*changes_rounding=*/true},
    PassInfo{"decompose_rnn", decompose_rnn, Stage::kSpecialize,
             "replaces recurrent layers on the CPU by loops over time steps",
             /*changes_rounding=*/true},
    PassInfo{"decompose_rnn_cells", decompose_rnn_cells, Stage::kSpecialize,
             "replaces steps of recurrent layers by products and pointwise operators", /*changes_rounding=*/true},
    PassInfo{"differentiate", differentiate, Stage::kSpecialize,
             "replaces slices of the graph by differentiable subgraphs, where gradients are recorded",
             /*changes_rounding=*/true},
    PassInfo{"eliminate_common_nodes", eliminate_common_nodes, Stage::kOptimize,
             "merges nodes with the same operator, operands and attributes"},
    PassInfo{"eliminate_dead_nodes", eliminate_dead_nodes, Stage::kRequired,
             "removes nodes without effects whose outputs are unused"},
    PassInfo{"fold_batch_norm", fold_batch_norm, Stage::kOptimize,
             "folds batch norms into the convolutions before them, in frozen modules", /*changes_rounding=*/true},
    PassInfo{"fold_constant_branches", fold_constant_branches, Stage::kOptimize,
             "replaces branches with a constant condition, removes loops that never run"},
    PassInfo{"form_captures", form_captures, Stage::kFuse,
             "makes captured nodes of the ranges of nodes that a CUDA graph can hold"},
    PassInfo{"form_groups", form_groups, Stage::kFuse, "makes kernel nodes of the nodes that one kernel may compute"},
    PassInfo{"hoist_attribute_reads", hoist_attribute_reads, Stage::kFuse,
             "moves reads of attributes from between a product and what follows it"},
    PassInfo{"hoist_loop_invariants", hoist_loop_invariants, Stage::kOptimize, "moves loop-invariant nodes out of loops"},
    PassInfo{"join_clamps", join_clamps, Stage::kFuse, "lets convolutions with packed weights clamp their results"},
    PassInfo{"join_summed_products", join_summed_products, Stage::kSpecialize,
             "multiplies once where an unrolled loop adds up products", /*changes_rounding=*/true},
    PassInfo{"lower_autocast", lower_autocast, Stage::kRequired,
             "lowers `with torch.autocast(…)` blocks to casts of operands"},
    PassInfo{"lower_grad_of", lower_grad_of, Stage::kRequired,
             "replaces prim::GradOf by a branch on whether a gradient is defined"},
    PassInfo{"lower_tuples", lower_tuples, Stage::kOptimize, "replaces tuples that do not escape by their elements"},
    PassInfo{"partially_unroll_loops", partially_unroll_loops, Stage::kOnRequest,
             "unrolls loops of unknown trip count by eight"},
    PassInfo{"peephole", peephole, Stage::kOptimize, "rewrites nodes, looking at their operands only"},
    PassInfo{"pool_constants", pool_constants, Stage::kOptimize,
             "merges equal constants and moves them to the top of the graph"},
    PassInfo{"propagate_channels_last", propagate_channels_last, Stage::kOptimize,
             "runs convolutions of images channels-last where that is unobservable, in frozen modules and without gradients",
             /*changes_rounding=*/true},
    PassInfo{"propagate_constants", propagate_constants, Stage::kOptimize, "computes nodes whose operands are constants"},
    PassInfo{"propagate_facts", propagate_facts, Stage::kSpecialize,
             "derives dtypes, devices, sizes and strides of values from those of the inputs"},
    PassInfo{"remove_dead_copies", remove_dead_copies, Stage::kOptimize, "removes copies and casts that change nothing"},
    PassInfo{"remove_expands", remove_expands, Stage::kRequired,
             "removes implicit expands, which only make broadcasting explicit"},
    PassInfo{"remove_layout_changes", remove_layout_changes, Stage::kOptimize,
             "removes views and copies that cancel each other, merges consecutive views"},
    PassInfo{"remove_list_mutation", remove_list_mutation, Stage::kOptimize,
             "constructs lists at once that are built step by step"},
    PassInfo{"remove_tensor_mutation", remove_tensor_mutation, Stage::kSpecialize,
             "replaces in-place operators by their functional variants where that is unobservable"},
    PassInfo{"specialize_autograd_zero", specialize_autograd_zero, Stage::kRequired,
             "removes computations on gradients known to be undefined"},
    PassInfo{"unroll_loops", unroll_loops, Stage::kOptimize, "unrolls loops with a constant trip count"},
};
static_assert(std::ranges::is_sorted(kPasses, [](const PassInfo& a, const PassInfo& b) { return a.name < b.name; }));

constexpr std::array<std::string_view, 5> kPassesWithArguments = {"freeze", "lower_callers_autocast", "lower_known_operands",
                                                                  "refine_optional_tensors", "settle_autocast"};

}  // namespace

std::span<const PassInfo> all_passes() { return kPasses; }
std::span<const std::string_view> passes_with_arguments() { return kPassesWithArguments; }

const PassInfo* find_pass(std::string_view name) {
  const auto found = std::ranges::find_if(kPasses, [&](const PassInfo& pass) { return pass.name == name; });
  return found == kPasses.end() ? nullptr : &*found;
}

std::vector<std::string_view> nearest_pass_names(std::string_view name) {
  std::vector<std::string_view> names;
  for (const PassInfo& pass : kPasses) {
    names.push_back(pass.name);
  }
  std::ranges::stable_sort(names, [&](auto a, auto b) { return edit_distance(name, a) < edit_distance(name, b); });
  names.resize(std::min<size_t>(names.size(), 3));
  return names;
}

}  // namespace sconce
