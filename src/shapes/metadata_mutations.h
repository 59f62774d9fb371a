// Tensors that get other sizes, strides or memory while the graph runs.
#pragma once

#include "analysis/assigned_attributes.h"
#include "ir/graph.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sconce {

// Operators such as `t_`, `resize_`, `set_` and those that resize an `out=` change one object: of other objects over the
// same memory the sizes stay. So it is asked which values may be the same object, not which share memory.
//
//   %v = aten::view(%x, …)     another object: %x may be resized, %v keeps its sizes
//   %c = aten::contiguous(%x)  may be %x itself
//
// Values come to be one object through branches, loops, casts and operators that give back an operand. Beside those there
// are the objects that were there before the run, and those read out of lists, tuples, dicts and attributes, which may be
// any that was put there.
class MetadataMutations {
 public:
  explicit MetadataMutations(const Graph& graph);

  // Whether the value may be an object that is exchanged at some time. False for what is no tensor.
  bool contains(const Value& value) const;
  bool any() const { return any_; }

 private:
  using Set = uint32_t;
  static constexpr Set kBefore = 0;  // there before the run
  static constexpr Set kRead = 1;    // read out of something

  Set find(Set set) const;
  Set set_for(const Value& value);
  void unite(Set a, Set b);
  void visit_block(const Block& block);
  void visit_node(const Node& node);
  void visit_operator(const Node& node);
  void put(const Value& value) { is_put_[find(set_for(value))] = true; }
  void exchange(Set set);

  mutable std::vector<Set> parent_ = {kBefore, kRead};
  std::vector<bool> is_put_ = {true, true};  // somebody may have put the object where others read it
  std::vector<bool> is_exchanged_;
  std::unordered_map<const Value*, Set> sets_;
  const AssignedAttributes assigned_;
  bool any_ = false;
};

}  // namespace sconce
