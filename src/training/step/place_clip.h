// place_clip: the factor that clips gradients in the graph of a training step.
//
//   …                                              …
//   -> (%loss, %g, %h)                     →       %n : Tensor = aten::norm(%g, %two)
//                                                  …
//                                                  %f : Tensor = aten::clamp(…)
//                                                  -> (%loss, %g, %h, %f)
#pragma once

#include "ir/graph.h"
#include "pipeline/pass_runner.h"

#include <cstddef>
#include <string>

namespace sconce {

// Adds the factor to the outputs. The gradients are the outputs from `first` on. `group`: of ranks, that all take the factor
// of rank 0, as sums are rounded by how many threads compute them; empty without ranks.
void place_clip(Graph& graph, size_t first, double max_norm, const std::string& group, bool has_kernels, PassRunner& runner);

}  // namespace sconce
