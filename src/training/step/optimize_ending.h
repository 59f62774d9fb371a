// optimize_ending: the passes of a text that is put into the finished graph of a step.
#pragma once

#include "ir/graph.h"
#include "pipeline/pass_runner.h"

#include <memory>

namespace sconce {

// `has_kernels`: what kernels may compute is a kernel node in the result.
std::shared_ptr<Graph> optimize_ending(std::unique_ptr<Graph> graph, bool has_kernels, PassRunner& runner);

}  // namespace sconce
