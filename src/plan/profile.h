// What runs of a graph saw: the shapes of its tensors, the branches it took, the rounds of its loops.
#pragma once

#include "ir/graph.h"

#include <sconce/explanation.h>

#include <ATen/core/ivalue.h>

#include <memory>
#include <mutex>
#include <unordered_map>

namespace sconce {

// Filled by the steps of a plan that was lowered with it, from any number of threads.
class Profile {
 public:
  explicit Profile(std::shared_ptr<const Graph> graph) : graph_(std::move(graph)) {}

  void add_run();
  // Ignores what is no tensor.
  void add_value(const Value& value, const c10::IValue& held);
  void add_branch(const Node& branch, bool taken);
  void add_loop(const Node& loop);   // it was reached
  void add_round(const Node& loop);  // its body was

  // The graph with the facts that held in every run so far: a size that changed is unknown, as is all about a value that
  // was never made.
  std::unique_ptr<Graph> annotated_graph() const;
  ProfileExplanation explain() const;

 private:
  struct Counts {
    uint64_t first = 0;   // branches: taken, loops: reached
    uint64_t second = 0;  // branches: not taken, loops: rounds
  };

  const std::shared_ptr<const Graph> graph_;
  mutable std::mutex mutex_;
  uint64_t runs_ = 0;
  std::unordered_map<const Value*, TensorFacts> facts_;
  std::unordered_map<const Node*, Counts> counts_;
};

}  // namespace sconce
