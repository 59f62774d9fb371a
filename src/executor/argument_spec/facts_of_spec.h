// The inverse of ArgumentSpecCreator::create: from the words of a spec to facts about a graph.
#pragma once

#include "executor/argument_spec/argument_spec.h"
#include "ir/graph.h"
#include "passes/simplify/propagate_facts.h"

#include <cstdint>
#include <span>

namespace sconce {

// Sets the facts of the graph's inputs, and of attributes that it reads. They hold in every call with these words. The rest
// of what the words say is returned: elements of tuples and lists, None, values of attributes, grad mode.
//
//   sizes      symbols, but for those of parameters and sizes of 1
//   exotic tensors, dicts, and numbers among the arguments   no facts
//
// `creator`: made the words. `graph`: that of the creator, before or after passes. `symbolic_sizes`: of a call with these
// words, as examples for the symbols; there may be none.
InputAssumptions facts_of_spec(Graph& graph, const ArgumentSpecCreator& creator, std::span<const uint64_t> words,
                               std::span<const int64_t> symbolic_sizes = {});

}  // namespace sconce
