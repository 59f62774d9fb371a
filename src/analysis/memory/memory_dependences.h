// A snapshot of the read/write dependences between nodes. Comparing the snapshots from before and after a pass detects a
// pass that merged two values it should have kept apart: a write then reaches a read that it could not reach before.
#pragma once

#include "analysis/memory/alias_sets.h"
#include "ir/graph.h"

#include <string>
#include <unordered_map>
#include <vector>

namespace sconce {

class MemoryDependences {
 public:
  explicit MemoryDependences(const Graph& graph);

  // Describes two nodes, present in both snapshots of one graph, of which the first may write what the second reads and
  // could not before. Empty if there are none. Ignores memory that code outside may hold: inputs, attributes and constants
  // are all in one alias set, the wildcard.
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
