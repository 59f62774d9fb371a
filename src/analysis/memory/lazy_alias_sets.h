// Alias sets, computed on first use: in most graphs a pass never needs them.
#pragma once

#include "analysis/memory/alias_sets.h"

#include <optional>

namespace sconce {

class LazyAliasSets {
 public:
  explicit LazyAliasSets(const Graph& graph) : graph_(graph) {}

  // Returns the alias sets of the graph at the first call. After it, a pass may only forward values and insert constants.
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
