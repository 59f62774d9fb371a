// The arithmetic and the memory traffic of nodes, from the sizes of their tensors.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"

#include <sconce/step_trace.h>

#include <ATen/core/ivalue.h>

#include <optional>
#include <unordered_map>
#include <vector>

namespace sconce {

// What a run of a graph got for an input. Tensors are not kept.
struct GivenInput {
  AbstractValue value;
  c10::IValue object;  // of a class; None otherwise
};
GivenInput given_input(const c10::IValue& value);

// Derives the sizes of all values of a graph from those of its inputs, and says what each node does. The node may stand in
// a kernel node's block.
class GraphWork {
 public:
  // `computed`: what a run computed for some values.
  GraphWork(const Graph& graph, const std::vector<GivenInput>& inputs,
            const std::unordered_map<const Value*, TensorFacts>& computed = {});

  // Returns nothing if sizes or dtypes are not known, or what the operator computes. `node` is one of the graph that was
  // given. A node that runs other nodes by steps of their own (prim::Loop, a differentiable subgraph) does nothing itself.
  std::optional<StepWork> of(const Node& node) const;

 private:
  std::unordered_map<const Node*, std::optional<StepWork>> work_;
};

}  // namespace sconce
