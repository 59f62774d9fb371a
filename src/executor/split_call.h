// split_call: a call in two parts, of which the second can be recorded.
#pragma once

#include "ir/graph.h"

#include <memory>
#include <optional>

namespace sconce {

// Potentials build a neighbor list first: with `nonzero`, by a method of a custom class, or by an operator of a library. No
// recording holds these, but it can hold what follows:
//
//   graph(%self, %x):                     first: graph(%self, %x)         rest: graph(%self, %x, %edges)
//     %c = aten::cdist(%x, %x, …)           %c = aten::cdist(…)             %y = …  of %x, %edges
//     %edges = aten::nonzero(%c)     →      %edges = aten::nonzero(%c)      -> (%y)
//     %y = …  of %x, %edges                 -> (%edges)
//     -> (%y)
struct CallParts {
  std::unique_ptr<Graph> first;  // returns what `rest` takes after the arguments
  std::unique_ptr<Graph> rest;   // takes the arguments of the call, then the results of `first`
};

// Splits a method after the last node of its body that is never recordable. Where such nodes only find indices, of what
// nothing writes, they and what they are computed from are the first part alone, wherever they stand. Returns nothing if
// there is no such node, if nothing follows it, or if the method assigns attributes. `rest` reads attributes and computes
// numbers again, so that sizes can stay open.
std::optional<CallParts> split_call(const Graph& graph);

}  // namespace sconce
