// Profile: the shapes of tensors, branches taken and iterations of loops in runs of a graph.
#pragma once

#include "ir/graph.h"

#include <sconce/explanation.h>

#include <ATen/core/ivalue.h>

#include <memory>
#include <mutex>
#include <unordered_map>

namespace sconce {

// Filled by the steps of a plan that was lowered with this profile, from any number of threads.
class Profile {
 public:
  explicit Profile(std::shared_ptr<const Graph> graph) : graph_(std::move(graph)) {}

  void add_run();
  // Ignores values that are not tensors.
  void add_value(const Value& value, const c10::IValue& held);
  void add_branch(const Node& branch, bool taken);
  void add_loop(const Node& loop);       // the loop was reached
  void add_iteration(const Node& loop);  // an iteration began

  // Returns the graph with the facts that held in every run so far. A size that changed is unknown; a value that was never
  // computed has no facts.
  std::unique_ptr<Graph> annotated_graph() const;
  ProfileExplanation explain() const;

 private:
  struct Counts {
    uint64_t first = 0;   // a branch: taken; a loop: reached
    uint64_t second = 0;  // a branch: not taken; a loop: iterations
  };

  const std::shared_ptr<const Graph> graph_;
  mutable std::mutex mutex_;
  uint64_t runs_ = 0;
  std::unordered_map<const Value*, TensorFacts> facts_;
  std::unordered_map<const Node*, Counts> counts_;
};

}  // namespace sconce
