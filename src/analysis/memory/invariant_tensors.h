// Constants of a graph that are the same tensor, with the same elements, in every run.
#pragma once

#include "ir/graph.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <unordered_set>

namespace sconce {

// A snapshot. A constant may change if the graph writes it, if it escapes, or if code outside holds it (attr::kShared).
class InvariantTensors {
 public:
  explicit InvariantTensors(const Graph& graph);

  // Returns the strided tensor that the operand is in every run, if it requires no gradient; an undefined tensor for None.
  // Nothing for any other operand, and for null.
  std::optional<at::Tensor> find(const Value* operand) const;
  // Returns whether the constant's elements may change, within a run or between runs.
  bool may_change(const at::Tensor& constant) const;

 private:
  std::unordered_set<const c10::StorageImpl*> changing_;  // by storage: several constants may share one
};

}  // namespace sconce
