// The gradients of values, added up while differentiation walks over a graph.
#pragma once

#include "base/flat_map.h"
#include "ir/graph.h"

#include <c10/util/ArrayRef.h>

#include <vector>

namespace sconce {

// The gradient of a value. It is an undefined tensor in runs that compute none: the caller asks for no gradient of an
// output, a loop runs zero iterations, a branch does not use the value. As in autograd, no operator computes with an
// undefined gradient: zeros would become NaN where a derivative is infinite.
struct Gradient {
  Value* value = nullptr;  // null if no run computes one
  std::vector<Value*>
      sources;  // inputs of the joint graph, or results of loops and branches: it is defined where one of them is
};

// Adds the sources that are not among `into`.
void merge_sources(std::vector<Value*>& into, const std::vector<Value*>& from);
// Returns the sources of all.
std::vector<Value*> sources_of(c10::ArrayRef<Gradient> gradients);

class GradientSums {
 public:
  // Nodes are inserted before `end`.
  explicit GradientSums(Node* end) : end_(end) {}

  // Adds to the gradient of the value.
  void add(Value* value, const Gradient& gradient);
  // Returns the sum; its value is null if nothing was added.
  Gradient at(const Value* value) const;

 private:
  Node* const end_;
  FlatMap<const Value*, Gradient> sums_;
};

}  // namespace sconce
