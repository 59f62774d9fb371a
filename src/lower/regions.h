// Regions: memory of a graph that a plan may place, and how long it is in use.
#pragma once

#include "analysis/memory/alias_sets.h"
#include "base/flat_map.h"
#include "ir/graph.h"

#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sconce {

// The positions of a graph's nodes in the order in which they run. The end of a node with blocks is a position, too.
class Positions {
 public:
  Positions() = default;
  explicit Positions(const Graph& graph) { number(graph.body()); }

  uint32_t begin(const Node& node) const { return extents_.at(&node).begin; }
  uint32_t end(const Node& node) const { return extents_.at(&node).end; }
  uint32_t count() const { return static_cast<uint32_t>(nodes_.size()); }
  const Node& at(uint32_t position) const { return *nodes_[position]; }
  // Lets the nodes run together: each begins with the first and ends with the last of them.
  void join(const std::vector<const Node*>& nodes);
  // Lets the nodes of a kernel node run together: each begins and ends with the kernel node.
  void join(const Node& kernel, const std::vector<const Node*>& nodes);

 private:
  struct Extent {
    uint32_t begin;
    uint32_t end;
  };
  void number(const Block& block);

  FlatMap<const Node*, Extent> extents_;
  std::vector<const Node*> nodes_;
};

// The values of one alias set share a region.
class Regions {
 public:
  // `autograd_runs`: autograd may keep the operands and results of any operator.
  Regions(const Graph& graph, bool autograd_runs);

  // Returns whether a plan may place the value's memory: it does not escape (rule R2), no container holds it, no operator
  // changes its form in place, and no value of the region outlives the trip of the loop that makes this one.
  bool is_plannable(const Value& value) const;
  // Returns whether the values may share memory.
  bool may_alias(const Value& a, const Value& b) const { return aliases_.may_alias(a, b); }
  // Returns whether an operator changes sizes or strides of a tensor of the value's region in place.
  bool changes_form(const Value& value) const;
  // Returns whether the value may be held after the run, or is made in a loop and may be held after its trip.
  bool may_be_kept(const Value& value) const;
  // Returns the last position at which the region's memory is used, if `value` provides it.
  uint32_t last_use(const Value& value, const Positions& positions) const;
  // The same of a view that does not escape, but whose region may: the last position at which the view's object, or one made
  // from it over its memory, is used.
  uint32_t last_use_of_view(const Value& view, const Positions& positions) const;

 private:
  struct Region {
    std::vector<const Value*> values;
    bool is_contained = false;
    bool changes_form = false;
  };
  const Region& region_of(const Value& value) const;
  uint32_t last_use_of(std::vector<const Value*> members, const Value& value, const Positions& positions) const;

  AliasSets aliases_;
  std::unordered_set<const Value*> escaping_;
  std::unordered_map<AliasSets::Set, Region> regions_;
};

}  // namespace sconce
