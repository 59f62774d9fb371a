// Which tensors of a graph have sizes that depend on more than the sizes of its arguments.
#pragma once

#include "ir/graph.h"

#include <functional>
#include <memory>

namespace sconce::testing {

// Sizes depend on data when they derive from the values of tensors (`nonzero`, `item`, masks, conditions on tensors), or
// from numbers and strings among the arguments, or numbers kept in attributes that the method changes: from what no input
// spec tells. What merely computes with data (`x * y.item()`) does not depend on it.
//
// Judged by the operators alone, in favor of dependence where it is open whether one matters; so tensors whose sizes
// somebody has found out before the run are named by `has_known_sizes`, and depend on nothing.
class DataDependence {
 public:
  // `seen`: a graph with the facts of a run, which tell masks from indices.
  DataDependence(const Graph& seen, std::function<bool(const Value&)> has_known_sizes);
  ~DataDependence();

  // Of a tensor: whether its sizes do.
  bool depends_on_data(const Value& value) const;

 private:
  class Analysis;
  std::unique_ptr<Analysis> analysis_;
};

}  // namespace sconce::testing
