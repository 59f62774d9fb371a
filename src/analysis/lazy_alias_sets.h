// Alias sets that are made when they are first asked for: most graphs give a pass no reason to.
#pragma once

#include "analysis/alias_sets.h"

#include <optional>

namespace sconce {

class LazyAliasSets {
 public:
  explicit LazyAliasSets(const Graph& graph) : graph_(graph) {}

  // Of the graph as it was at the first call: what comes after may forward values and make constants, no more.
  const AliasSets& get() const {
    if (!made_) {
      made_.emplace(graph_);
    }
    return *made_;
  }

 private:
  const Graph& graph_;
  mutable std::optional<AliasSets> made_;
};

}  // namespace sconce
