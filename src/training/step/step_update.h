// StepUpdate: the optimizer's part of a recorded step.
#pragma once

#include "ir/graph.h"
#include "training/step/place_updates.h"
#include "training/trained_parameters.h"
#include "training/update_rule.h"

#include <ATen/core/stack.h>

#include <memory>
#include <vector>

namespace sconce {

// Gives the plan of a step what its updates need. States and options are the optimizer's: each step reads them, and counts
// itself when the plan has run.
class StepUpdate {
 public:
  // Returns null if a plan cannot hold the update. `inputs` of the plan: the parameters are among them. `gradients`: per
  // parameter; undefined where none flows. Begins a step.
  static std::unique_ptr<StepUpdate> make(torch::optim::Optimizer& optimizer, const TrainedParameters& trained,
                                          const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& gradients,
                                          const Clipping& clipping);

  // Reads states and options for a step, and makes states that are missing. Returns false if the plan has another update
  // than this step. The caller compares the form of `states`.
  bool begin(const TrainedParameters& trained);
  const std::vector<at::Tensor>& states() const { return states_; }
  // Keeps states that were made, and counts the step.
  void end();
  // Drops what `begin` has read.
  void drop();

  // Adds inputs for states and numbers to the graph, whose outputs are `kept` ones that stay, the gradients that are defined
  // and, for a norm, the factor. `first`: how many inputs of the graph come before the tensors.
  StepUpdates declare(Graph& graph, size_t first, size_t kept) const;
  // Adds arguments for these inputs to those of the plan.
  void add_arguments(torch::jit::Stack& arguments, size_t first) const;

  size_t count() const { return updated_.size(); }  // of updated parameters

 private:
  struct Updated {
    at::Tensor param;
    size_t group;
    size_t input;
  };
  StepUpdate(torch::optim::Optimizer& optimizer, const UpdateRule& rule, const TrainedParameters& trained,
             const Clipping& clipping);
  std::vector<unsigned> variants() const;  // of the groups, now

  torch::optim::Optimizer& optimizer_;
  const UpdateRule& rule_;
  const Clipping clipping_;
  const std::vector<size_t> groups_;
  const std::vector<unsigned> variants_;
  std::vector<Update> updates_;  // of the groups
  std::vector<Updated> updated_;
  // ---- of the step that was begun
  std::vector<at::Tensor> states_;
  std::vector<double> numbers_;                           // of groups, then of parameters
  std::vector<std::unique_ptr<UpdateRule::State>> made_;  // per updated parameter; null for one that has a state, or none
};

}  // namespace sconce
