// What a specialized plan of a call would assume.
#pragma once

#include "ir/graph.h"
#include "passes/simplify/propagate_facts.h"

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace sconce::testing {

enum class Sizes {
  kSymbols,  // as the words of the spec say
  kNumbers,  // each symbol is replaced by the size in the call
};

// Makes the spec of the call, and from its words alone the facts of the graph's inputs and attributes.
InputAssumptions facts_of_call(Graph& graph, const std::vector<c10::IValue>& arguments, Sizes sizes);

// The words of the call's spec.
std::vector<uint64_t> words_of_call(const Graph& graph, const std::vector<c10::IValue>& arguments);

}  // namespace sconce::testing
