// Who reads what whom writes: to be compared before and after a pass.
#pragma once

#include "analysis/alias_sets.h"
#include "ir/graph.h"

#include <string>
#include <unordered_map>
#include <vector>

namespace sconce {

// A snapshot.
class MemoryDependences {
 public:
  explicit MemoryDependences(const Graph& graph);

  // Two nodes that are in both snapshots of one graph, of which the one may write what the other reads and might not before:
  // a pass has merged what must stay two. Empty when there are none. Of what somebody outside may hold now, nothing is said:
  // inputs, attributes and constants lie in one alias set, the wildcard.
  std::string new_since(const MemoryDependences& before) const;

 private:
  using Memories = std::vector<AliasSets::Memory>;
  enum class Wildcard { kCounts, kIsLeftOut };
  bool reaches(const Node* write, const Node* reader, Wildcard wildcard) const;

  AliasSets::Set wildcard_;
  std::unordered_map<const Node*, Memories> written_;
  std::unordered_map<const Node*, Memories> read_;
};

}  // namespace sconce
