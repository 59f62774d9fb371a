// Which values may share memory: a unification-based (Steensgaard-style) may-alias analysis.
//
// Every value that can hold memory is in one set. A set may have a *contents* set, which holds what its containers hold:
//
//   %l : Tensor[] = prim::ListConstruct(%a, %b)      sets: {%l} ──contents──► {%a, %b, %c}
//   %c : Tensor   = aten::__getitem__(%l, %i)
//
// One set is the wildcard: everything that code outside the graph may hold (graph inputs, module attributes, results of
// unknown operators). It is its own contents set. Two values in different sets share memory in no run. Two values in one set
// may or may not.
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

  // kAsOperands: a list that only operators with new results read is not a container of its elements, and neither is a list
  // that an operator returns and the graph only unpacks. Writes to elements are then not seen as writes within the list.
  enum class Lists : uint8_t { kAsContainers, kAsOperands };
  explicit AliasSets(const Graph& graph, Lists lists = Lists::kAsContainers);

  // Returns whether the values may share memory. Numbers and strings are in no set and alias nothing. Values of one set
  // whose types no object can have at once do not alias.
  bool may_alias(const Value& a, const Value& b) const;
  // Returns whether code outside the graph may hold the memory, before the run or through an object during it.
  bool is_wildcard(const Value& value) const;
  // Returns whether a node of the graph may write the value's own memory, not counting what it contains.
  bool may_be_written(const Value& value) const;
  // The same, counting what it contains.
  bool may_be_written_within(const Value& value) const;

  // The memory of these kinds in a set.
  struct Memory {
    Set set;
    MemoryKinds kinds;
  };
  // Returns the memory that the node may write, not counting the nodes nested in it.
  std::vector<Memory> writes_of(const Node& node) const;
  // Returns whether the node may write the value's own memory.
  bool may_write(const Node& node, const Value& value) const;

  Set set_of(const Value& value) const;  // kNone for a value that holds no memory
  Set contents_of(Set set) const;        // kNone if no value of the set is a container with known contents
  Set wildcard() const { return find(kWildcard); }

 private:
  static constexpr Set kWildcard = 0;
  Set find(Set set) const;
  Set unite(Set a, Set b);
  Set new_set();
  Set set_for(const Value* value);
  Set contents_for(Set set);
  void unite_values(const Value* a, const Value* b);
  bool holds_operands(Set set) const { return set != kNone && holds_operands_[find(set)]; }
  void mark_holder(Set set);
  void escape(const Value* value) { unite(set_for(value), kWildcard); }

  void visit_block(const Block& block);
  void visit_node(const Node& node);
  bool visit_language_node(const Node& node);
  void visit_operator(const Node& node);
  void visit_unknown(const Node& node);

  Lists lists_;
  mutable std::vector<Set> parent_;
  std::vector<Set> contents_;
  std::vector<MemoryKinds> written_;
  // By set: its values may hold operands of their nodes (Op::results_may_hold_operands). The result of an operator on such a
  // value may hold the same: a sparse tensor's function shares its indices. Never the wildcard.
  std::vector<bool> holds_operands_;
  bool found_holder_ = false;
  std::vector<Set> sets_;  // indexed by the ids of values; kNone for values not visited
};

}  // namespace sconce
