// The gradients of values, added up while differentiation walks over a graph.
#pragma once

#include "base/flat_map.h"
#include "ir/graph.h"

#include <unordered_set>

namespace sconce {

// A gradient that some runs may not compute: a loop may run no iteration, a branch may not use the value.
struct Gradient {
  Value* value = nullptr;
  Value* is_there = nullptr;  // a bool; null: in every run
  bool is_filled = true;      // where it is not there, the value is zeros; else it is an undefined tensor
};

// Gradients of the graph's results end as undefined tensors where they are not there, as autograd's do. Gradients of values
// inside are zeros there, so that what is computed of them needs no branches.
class GradientSums {
 public:
  // Nodes are inserted before `end`.
  explicit GradientSums(Node* end) : end_(end) {}

  // The gradient of this value is a result of the graph.
  void set_result(const Value* value) { results_.insert(value); }

  // Adds to the gradient of the value.
  void add(Value* value, Gradient gradient);
  // The same with a gradient that is there in runs where it is a defined tensor.
  void add_if_defined(Value* value, Value* gradient);
  // Returns the sum; its value is null if nothing was added.
  Gradient at(const Value* value) const;

  // Returns the bool that says whether one of two gradients is there.
  Value* either(Value* one, Value* other);
  // Returns the gradient as one that is undefined where it is not there.
  Gradient undefined_form(Gradient gradient);

 private:
  Gradient filled_form(Value* value, Gradient gradient);

  Node* const end_;
  FlatMap<const Value*, Gradient> sums_;
  std::unordered_set<const Value*> results_;
};

}  // namespace sconce
