// The plan of a training call, and what its differentiable subgraphs keep for backward.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"

#include <sconce/options.h>

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

// A value that a differentiable subgraph keeps for backward.
struct SavedValue {
  const char* role;                 // "input", "output", "intermediate"
  const Value* value;               // an input or output of the forward graph
  std::string name;                 // in the text of the forward graph: "%x.1"
  std::string backward_name;        // in the text of the backward graph
  std::optional<c10::IValue> held;  // by the last run, if the call ran the subgraph and backward could still use the value
};

struct DifferentiableSubgraph {
  const Node* node;
  std::string name;       // of its autograd node: "SconceBackward(model.py:12)"
  std::string text_name;  // of the forward graph in the text form: "sconce::differentiable_0"
  const Graph* forward;
  const Graph* backward;
  std::vector<SavedValue> saved;
};

struct DifferentiatedPlan {
  std::shared_ptr<const Graph> graph;
  std::vector<DifferentiableSubgraph> subgraphs;
};

// Makes the specialized plan of a call that records gradients, and runs it once. Refuses calls that record none, and plans
// without a differentiable subgraph. Throws what the model throws.
//
// `inlined`, `optimized`: the graph of the method after these stages. `arguments`: with the module first.
Expected<DifferentiatedPlan> differentiated_plan(const Graph& inlined, const Graph& optimized,
                                                 std::vector<c10::IValue> arguments, uint64_t seed, const Options& options);

}  // namespace sconce::cli
