// Which values may share memory: a unification-based (Steensgaard-style) may-alias analysis.
//
// Every value that can hold memory lies in one set; a set may have a *contents* set, for what its containers hold:
//
//   %l : Tensor[] = prim::ListConstruct(%a, %b)      sets: {%l} ──contents──► {%a, %b, %c}
//   %c : Tensor   = aten::__getitem__(%l, %i)
//
// One set is the wildcard: whatever anyone outside may hold (graph inputs, module attributes, results of unknown ops);
// its contents are itself. Two values in different sets never share memory, in no run. The reverse is not claimed.
#pragma once

#include "ir/graph.h"
#include "ir/memory_types.h"

#include <cstdint>
#include <vector>

namespace sconce {

class AliasSets {
 public:
  using Set = uint32_t;
  static constexpr Set kNone = UINT32_MAX;

  explicit AliasSets(const Graph& graph);

  // Numbers and strings lie in no set and alias nothing; two objects in one set are two if their types tell them apart.
  bool may_alias(const Value& a, const Value& b) const;
  // Whether somebody outside the graph may hold the memory (before, or through an object during, the run).
  bool is_wildcard(const Value& value) const;
  // Whether some node of the graph may write the memory of the value (not only of what it contains).
  bool may_be_written(const Value& value) const;
  // The same, or the memory of what it contains.
  bool may_be_written_within(const Value& value) const;

  // Of what lies in a set, that of these kinds.
  struct Memory {
    Set set;
    MemoryKinds kinds;
  };
  // What the node itself, without the nodes nested in it, may write.
  std::vector<Memory> writes_of(const Node& node) const;
  // Whether it may write the memory of the value, not only of what it contains.
  bool may_write(const Node& node, const Value& value) const;

  Set set_of(const Value& value) const;  // kNone for values that hold no memory
  Set contents_of(Set set) const;        // kNone when nothing in the set is a container with known contents
  Set wildcard() const { return find(kWildcard); }

 private:
  static constexpr Set kWildcard = 0;
  Set find(Set set) const;
  Set unite(Set a, Set b);
  Set new_set();
  Set set_for(const Value* value);
  Set contents_for(Set set);
  void unite_values(const Value* a, const Value* b);
  void escape(const Value* value) { unite(set_for(value), kWildcard); }

  void visit_block(const Block& block);
  void visit_node(const Node& node);
  bool visit_language_node(const Node& node);
  void visit_operator(const Node& node);
  void visit_unknown(const Node& node);

  mutable std::vector<Set> parent_;
  std::vector<Set> contents_;
  std::vector<MemoryKinds> written_;
  std::vector<Set> sets_;  // by the ids of values; kNone for those that were not met
};

}  // namespace sconce
