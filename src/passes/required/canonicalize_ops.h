// Replaces synonyms of an operator by its canonical name.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Renames synonyms of operators (`aten::multiply`, `aten::clip`, `aten::concat`, …) to the operator that LibTorch runs for
// them (`aten::mul`, `aten::clamp`, `aten::cat`), so that later passes need to know one name only.
//
// Requires: a verified graph. Keeps: operands, results, order.
// Does not: rename a synonym whose operator takes other arguments.
// Returns whether the graph changed.
bool canonicalize_ops(Graph& graph);

}  // namespace sconce
