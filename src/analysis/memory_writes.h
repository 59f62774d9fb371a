// When memory may be written: the question behind merging and moving nodes.
#pragma once

#include "analysis/alias_sets.h"
#include "ir/graph.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace sconce {

// A snapshot of the graph's program order and of the writes in it. Nodes may be erased afterwards, not added or moved.
class MemoryWrites {
 public:
  MemoryWrites(const Graph& graph, const AliasSets& aliases);

  // Whether the memory of `value`, or of what it contains, may be written after `first` has run and before `second` runs.
  // Requires that `first` stands before `second`, in the same block or in one around it. Writes of earlier iterations
  // count where a loop is around `second` alone.
  bool may_be_written_between(const Value& value, const Node& first, const Node& second) const;
  // The same from `first` to the end of the graph, which must stand in the graph's body.
  bool may_be_written_behind(const Value& value, const Node& first) const;
  // Whether a node between them may change what operators see beside their operands: grad mode, default dtype, ….
  bool state_may_change_between(const Node& first, const Node& second) const;

  // Whether the node stood in the graph when this was made.
  bool covers(const Node& node) const { return spans_.count(&node) != 0; }
  // Whether `node`, or the end of a block it is, comes after `other`, which stands in its block or in one around it.
  bool is_behind(const Node& node, const Node& other) const;

  // The same for the nodes nested in `node`.
  bool may_be_written_within(const Value& value, const Node& node) const;
  bool state_may_change_within(const Node& node) const;

 private:
  using Position = uint32_t;
  struct Span {
    Position begin;  // the node's own
    Position end;    // behind what is nested in it
  };
  using Positions = std::vector<Position>;  // ascending

  void visit(const Block& block);
  Span between(const Node& first, const Node& second) const;
  Span within(const Node& node) const;
  bool may_be_written(const Value& value, Span span) const;
  static bool any_in(const Positions& positions, Span span);

  const AliasSets& aliases_;
  std::unordered_map<const Node*, Span> spans_;
  // By the set and the kinds of memory that are written in it together.
  std::unordered_map<AliasSets::Set, std::unordered_map<MemoryKinds, Positions>> writes_;
  Positions state_changes_;
  Position next_ = 0;
};

}  // namespace sconce
