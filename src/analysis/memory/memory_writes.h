// When memory may be written. Passes that merge or move nodes ask this.
#pragma once

#include "analysis/memory/alias_sets.h"
#include "base/flat_map.h"
#include "ir/graph.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace sconce {

// A snapshot of the graph's program order and of the writes in it. Nodes may be erased afterwards, not added or moved.
class MemoryWrites {
 public:
  MemoryWrites(const Graph& graph, const AliasSets& aliases);

  // Returns whether the memory of `value`, or of what it contains, may be written after `first` has run and before `second`
  // runs. Requires that `first` is before `second`, in the same block or an enclosing one. If a loop encloses only `second`,
  // writes of earlier iterations count.
  bool may_be_written_between(const Value& value, const Node& first, const Node& second) const;
  // The same from `first`, which must be in the graph's body, to the end of the graph.
  bool may_be_written_after(const Value& value, const Node& first) const;
  // Returns whether a node between them may change global state that operators read: grad mode, default dtype, ….
  bool state_may_change_between(const Node& first, const Node& second) const;

  // Returns whether the node was in the graph when this snapshot was made.
  bool covers(const Node& node) const { return spans_.count(&node) != 0; }
  // Returns whether `node` (or the end of a block, if it is a return node) comes after `other`, which is in the same block
  // or an enclosing one.
  bool is_after(const Node& node, const Node& other) const;

  // The same questions about the nodes nested in `node`.
  bool may_be_written_within(const Value& value, const Node& node) const;
  // Does not count what the value contains: reading an attribute depends on its object alone.
  bool may_be_written_itself_within(const Value& value, const Node& node) const;
  bool state_may_change_within(const Node& node) const;

 private:
  using Position = uint32_t;
  struct Span {
    Position begin;  // of the node
    Position end;    // after the nodes nested in it
  };
  using Positions = std::vector<Position>;  // ascending

  void visit(const Block& block);
  Span between(const Node& first, const Node& second) const;
  Span within(const Node& node) const;
  bool may_be_written(const Value& value, Span span) const;
  bool is_written(AliasSets::Set set, MemoryKinds kinds, Span span) const;
  static bool any_in(const Positions& positions, Span span);

  const AliasSets& aliases_;
  FlatMap<const Node*, Span> spans_;
  // Indexed by set, then by the kinds of memory that one write affects.
  std::unordered_map<AliasSets::Set, std::unordered_map<MemoryKinds, Positions>> writes_;
  Positions state_changes_;
  Position next_ = 0;
};

}  // namespace sconce
