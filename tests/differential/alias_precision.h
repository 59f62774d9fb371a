// How precise the analysis of aliases is: how many pairs of values it cannot tell apart, beside LibTorch's.
#pragma once

#include "tests/support/memory_recorder.h"

#include "ir/graph.h"

#include <string>

namespace sconce::testing {

// Of the values that a run made and that both analyses know, taken in pairs.
struct PairCounts {
  size_t values = 0;
  size_t pairs = 0;
  size_t shared = 0;        // held the same memory in the run
  size_t ours = 0;          // AliasSets says that they may alias
  size_t torch = 0;         // torch::jit::AliasDb does
  size_t only_ours = 0;     // AliasSets does, and AliasDb does not, and they shared nothing
  size_t only_torch = 0;    // the other way round
  size_t torch_missed = 0;  // shared memory, and AliasDb calls them distinct

  PairCounts& operator+=(const PairCounts& other);
};

// Throws what AliasDb throws for graphs that it cannot analyze.
PairCounts count_pairs(const Graph& graph, const RecordedRun& run);

std::string precision_head();
std::string precision_row(const std::string& name, const PairCounts& counts);

}  // namespace sconce::testing
