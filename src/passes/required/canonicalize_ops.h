#pragma once

#include "ir/graph.h"

namespace sconce {

// Calls every operator by one name: synonyms (`aten::multiply`, `aten::clip`, `aten::concat`, …) become the operator that
// LibTorch runs for them (`aten::mul`, `aten::clamp`, `aten::cat`), so that later passes and the op table know one spelling.
//
// Requires: a verified graph. Keeps: operands, results, order. A synonym whose operator takes other arguments is left.
// Returns whether the graph changed.
bool canonicalize_ops(Graph& graph);

}  // namespace sconce
