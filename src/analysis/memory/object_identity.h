// Whether a graph observes the identity of tuples and strings.
#pragma once

#include "ir/graph.h"

#include <functional>
#include <optional>

namespace sconce {

// Returns whether the graph could observe the identity of a tuple or string. These values are immutable, so two equal ones
// differ only under `is`. If the result is true, passes must not recreate or merge them. A call that receives such a value
// counts as an observer, unless `is_seen(call)` says that its body is analyzed, too.
bool observes_identity(const Graph& graph, const std::function<bool(const Node& call)>& is_seen = nullptr);
// The answer about a graph, found at the first question.
class LazyIdentity {
 public:
  explicit LazyIdentity(const Graph& graph) : graph_(graph) {}
  bool is_observed() {
    if (!observed_) {
      observed_ = observes_identity(graph_);
    }
    return *observed_;
  }

 private:
  const Graph& graph_;
  std::optional<bool> observed_;
};
// Returns whether an output of the node is a tuple or string.
bool produces_tuple_or_string(const Node& node);

}  // namespace sconce
