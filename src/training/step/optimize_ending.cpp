#include "training/step/optimize_ending.h"

#include "executor/stages.h"

#include <utility>

namespace sconce {

std::shared_ptr<Graph> optimize_ending(std::unique_ptr<Graph> graph, bool has_kernels, PassRunner& runner) {
  run_stage(Stage::kRequired, graph, runner);
  run_stage(Stage::kOptimize, graph, runner);
  std::shared_ptr<Graph> fused = std::move(graph);
  fuse_passes(fused, GroupMoves::kOperators, has_kernels, /*packs_weights=*/false, runner);
  return fused;
}

}  // namespace sconce
