// The passes of each stage, in their order. The order matters: pass_order.h has the reasons, and a test compares.
#pragma once

#include "executor/compile.h"
#include "fusion/group/form_groups.h"
#include "passes/simplify/propagate_facts.h"
#include "pipeline/pass_runner.h"

#include <sconce/explanation.h>

#include <cstddef>
#include <memory>
#include <optional>

namespace sconce {

// The stages that take no passes of the user's.
constexpr const char* kInlineStage = "inline";
constexpr const char* kFreezeStage = "freeze";

// Inlines all calls that can be inlined (passes/required/inline_calls.h). With `optimize`, simplifies a function with
// several calls once. Returns the time it took.
Expected<PassTiming> inline_and_simplify(Graph& graph, FunctionTable& functions, const PassPipeline& passes, bool optimize);

// Freezes a method (passes/freeze/freeze.h) and, with `optimize`, runs the passes that its constants enable. Runs
// once for all plans of the method, so that they share computed constants, and before argument specs are derived from
// the remaining reads.
void freeze_method(Graph& method, const ModuleConstants& constants, bool optimize, PassRunner& runner);

// Runs the passes of a stage in their order, the user's at their places.
void run_stage(Stage stage, std::unique_ptr<Graph>& graph, PassRunner& runner, bool frozen = false);

// Runs the passes of a specialized plan: facts, the caller's autocast, optimization, differentiable subgraphs, of which it
// sets `gradients`. Returns how many timings the runner had before optimization.
size_t specializing_passes(Graph& graph, const InputAssumptions& given, const CompileSettings& settings,
                           std::optional<GradientExplanation>& gradients, PassRunner& runner);

// Optimizes a backward graph, which runs without autograd.
void backward_passes(Graph& backward, bool exact, PassRunner& runner);

// Makes kernel nodes, in the very form of the graph that a plan runs, and runs the user's passes of Stage::kFuse.
// `packs_weights`: the plan packs weights.
void fuse_passes(std::shared_ptr<Graph>& graph, GroupMoves moves, bool has_kernels, bool packs_weights, PassRunner& runner);

// Makes captured nodes, if the settings ask for CUDA graphs. The last pass of all: others do not look into these nodes.
void record_passes(Graph& graph, bool cuda_graphs, PassRunner& runner);

// Removes nodes that the user's passes made dead: they would run in every call.
void remove_dead_code(Graph& graph, PassRunner& runner);

}  // namespace sconce
