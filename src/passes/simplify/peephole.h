// Rewrites nodes, looking at their operands only.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Rewrites
//   - reads of elements and lengths of lists that the graph builds, or unbinds from a tensor;
//   - extensions of lists by elements;
//   - casts and tests that the types decide;
//   - numbers that come out of tensors made of numbers;
//   - queries of tensor properties that facts answer;
//   - casts to the dtype of a tensor whose dtype facts know;
//   - dropout on a GPU, into the operator that LibTorch computes it by;
//   - sums to the size that the operand has, and other calls that return their argument.
//
// Each rule is next to the operator that it rewrites in peephole.cpp. Returns whether the graph changed.
bool peephole(Graph& graph);

}  // namespace sconce
