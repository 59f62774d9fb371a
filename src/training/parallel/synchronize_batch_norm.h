// synchronize_batch_norm: norms with the mean and variance of all ranks' batches.
//
//   %y = aten::batch_norm(%x, …)          →    %y = sconce::sync_batch_norm(%x, …, "sconce_0")
#pragma once

#include "ir/graph.h"

#include <string>

namespace sconce {

// `group`: in c10d's registry. Returns whether the graph has changed.
bool synchronize_batch_norm(Graph& graph, const std::string& group);

}  // namespace sconce
