// Makes one graph for calls of all sizes from two traces of a call.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <vector>

namespace sconce {

// A size of an input of the graph, with its number in both traces.
struct SizeSource {
  size_t input;
  int64_t dim;
  int64_t first;
  int64_t second;
};

// Replaces constants of `first` that are other numbers in `second` by what computes them from sizes. Returns false if the
// graphs differ otherwise, or a number is not found. That a number is found proves nothing: other sizes must.
bool generalize(Graph& first, const Graph& second, const std::vector<SizeSource>& sources);

}  // namespace sconce
