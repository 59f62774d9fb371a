// Tensors whose sizes, strides or memory change while the graph runs (metadata mutation).
#pragma once

#include "analysis/memory/assigned_attributes.h"
#include "ir/graph.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace sconce {

// Operators such as `t_`, `resize_`, `set_`, and those that resize an `out=`, change one object. Other objects over the same
// memory keep their sizes. So this analysis computes which values may be the same object, not which share memory.
//
//   %v = aten::view(%x, …)     another object: %x may be resized, %v keeps its sizes
//   %c = aten::contiguous(%x)  may be %x itself
//
// Two values may be one object because of branches, loops, casts and operators that return an operand. Two more sets are the
// objects from before the run, and those read from lists, tuples, dicts and attributes. The latter may be any object stored
// in one of these.
class MetadataMutations {
 public:
  explicit MetadataMutations(const Graph& graph);

  // Returns whether the value may be an object whose metadata changes at some time. False for a value that is not a tensor.
  bool contains(const Value& value) const;
  bool any() const { return any_; }

 private:
  using Set = uint32_t;
  static constexpr Set kBefore = 0;  // objects from before the run
  static constexpr Set kRead = 1;    // objects read from containers and attributes

  Set find(Set set) const;
  Set set_for(const Value& value);
  void unite(Set a, Set b);
  void visit_block(const Block& block);
  void visit_node(const Node& node);
  void visit_operator(const Node& node);
  void put(const Value& value) { is_put_[find(set_for(value))] = true; }
  void exchange(Set set);

  mutable std::vector<Set> parent_ = {kBefore, kRead};
  std::vector<bool> is_put_ = {true, true};  // the object may have been stored in a container or attribute
  std::vector<bool> is_exchanged_;
  std::unordered_map<const Value*, Set> sets_;
  const AssignedAttributes assigned_;
  bool any_ = false;
};

}  // namespace sconce
