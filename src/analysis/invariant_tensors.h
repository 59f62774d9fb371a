// Constants of a graph that are the same tensor in every run.
#pragma once

#include "ir/graph.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <unordered_set>

namespace sconce {

// A snapshot of which memory constants lie in that the graph writes or hands to others, or others hold anyhow
// (attr::kShared).
class InvariantTensors {
 public:
  explicit InvariantTensors(const Graph& graph);

  // The strided tensor that the operand is in all runs, taking no gradient; an undefined one for None. Nothing for any other
  // operand, and for a null one.
  std::optional<at::Tensor> find(const Value* operand) const;
  // Whether the constant may hold something else in another run, or later in the same.
  bool may_change(const at::Tensor& constant) const;

 private:
  std::unordered_set<const c10::StorageImpl*> changing_;  // several constants may lie in one storage
};

}  // namespace sconce
