#include "pipeline/pass_list.h"

#include "base/edit_distance.h"
#include "passes/freeze/fold_batch_norm.h"
#include "passes/layout/propagate_channels_last.h"
#include "passes/layout/remove_layout_changes.h"
#include "passes/loops/hoist_loop_invariants.h"
#include "passes/loops/partially_unroll_loops.h"
#include "passes/loops/unroll_loops.h"
#include "passes/matmul/batch_matmul.h"
#include "passes/matmul/decompose_ops.h"
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
#include "passes/simplify/lower_tuples.h"
#include "passes/simplify/peephole.h"
#include "passes/simplify/pool_constants.h"
#include "passes/simplify/propagate_constants.h"
#include "passes/simplify/propagate_facts.h"

#include <algorithm>
#include <array>
#include <string>

namespace sconce {
namespace {

constexpr std::array kPasses = {
    PassInfo{"batch_matmul", batch_matmul, Stage::kOnRequest, "computes several matrix products as one",
             /*changes_rounding=*/true},
    PassInfo{"canonicalize_ops", canonicalize_ops, Stage::kRequired, "calls synonyms of an operator by its one name"},
    PassInfo{"check_inplace", check_inplace, Stage::kOptimize, "fails if a constant that was folded is written"},
    PassInfo{"decompose_ops", decompose_ops, Stage::kOnRequest, "takes addmm and linear apart where batch_matmul gains",
             /*changes_rounding=*/true},
    PassInfo{"eliminate_common_nodes", eliminate_common_nodes, Stage::kOptimize,
             "merges nodes that compute the same from the same"},
    PassInfo{"eliminate_dead_nodes", eliminate_dead_nodes, Stage::kRequired,
             "removes nodes without effects whose outputs nobody uses"},
    PassInfo{"fold_batch_norm", fold_batch_norm, Stage::kOptimize,
             "makes batch norms part of the convolutions before them, in frozen modules", /*changes_rounding=*/true},
    PassInfo{"fold_constant_branches", fold_constant_branches, Stage::kOptimize,
             "takes branches whose condition is constant, removes loops that never run"},
    PassInfo{"hoist_loop_invariants", hoist_loop_invariants, Stage::kOptimize,
             "moves out of loops what every iteration computes anew"},
    PassInfo{"lower_autocast", lower_autocast, Stage::kRequired,
             "turns `with torch.autocast(…)` blocks into casts of the operands"},
    PassInfo{"lower_grad_of", lower_grad_of, Stage::kRequired,
             "turns prim::GradOf into a branch on which gradients are defined"},
    PassInfo{"lower_tuples", lower_tuples, Stage::kOptimize, "takes apart tuples that are only carried around"},
    PassInfo{"partially_unroll_loops", partially_unroll_loops, Stage::kOnRequest,
             "runs loops of unknown length by eight iterations at a time"},
    PassInfo{"peephole", peephole, Stage::kOptimize, "small rewrites of a node and its operands"},
    PassInfo{"pool_constants", pool_constants, Stage::kOptimize,
             "keeps one constant of each value, at the top of the graph"},
    PassInfo{"propagate_channels_last", propagate_channels_last, Stage::kOptimize,
             "runs convolutions of images channels-last where results do not show it, in frozen modules",
             /*changes_rounding=*/true},
    PassInfo{"propagate_constants", propagate_constants, Stage::kOptimize, "computes what depends on constants alone"},
    PassInfo{"propagate_facts", propagate_facts, Stage::kSpecialize,
             "finds dtypes, devices, sizes and strides from those of the inputs"},
    PassInfo{"remove_dead_copies", remove_dead_copies, Stage::kOptimize, "removes copies and casts that change nothing"},
    PassInfo{"remove_expands", remove_expands, Stage::kRequired, "removes expands that only spell out broadcasting"},
    PassInfo{"remove_layout_changes", remove_layout_changes, Stage::kOptimize,
             "removes views and copies that undo one another, makes one view of several"},
    PassInfo{"remove_list_mutation", remove_list_mutation, Stage::kOptimize,
             "makes lists that are built step by step where they are complete"},
    PassInfo{"remove_tensor_mutation", remove_tensor_mutation, Stage::kOnRequest,
             "calls operators in place by their functional twins where nobody can tell"},
    PassInfo{"specialize_autograd_zero", specialize_autograd_zero, Stage::kRequired,
             "removes the work on gradients known to be undefined"},
    PassInfo{"unroll_loops", unroll_loops, Stage::kOptimize, "writes out loops with a known number of iterations"},
};
static_assert(std::is_sorted(kPasses.begin(), kPasses.end(),
                             [](const PassInfo& a, const PassInfo& b) { return a.name < b.name; }));

}  // namespace

std::span<const PassInfo> all_passes() { return kPasses; }

const PassInfo* find_pass(std::string_view name) {
  const auto found = std::find_if(kPasses.begin(), kPasses.end(), [&](const PassInfo& pass) { return pass.name == name; });
  return found == kPasses.end() ? nullptr : &*found;
}

std::vector<std::string_view> nearest_pass_names(std::string_view name) {
  std::vector<std::string_view> names;
  for (const PassInfo& pass : kPasses) {
    names.push_back(pass.name);
  }
  std::stable_sort(names.begin(), names.end(),
                   [&](auto a, auto b) { return edit_distance(name, a) < edit_distance(name, b); });
  names.resize(std::min<size_t>(names.size(), 3));
  return names;
}

}  // namespace sconce
