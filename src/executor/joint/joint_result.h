// The autograd nodes of a call by a joint recording with several results that bring gradients.
#pragma once

#include "executor/joint/joint_plans.h"

#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sconce {

class JointNode;

// The node of one result. Hooks of the result are called if, and only if, a backward comes through it. Autograd inputs: the
// result's gradient. Autograd outputs: to the groups of tensors that the result depends on, undefined, because the call
// takes the gradient; then to the results below, from which this one is computed.
//
// The recorded backward computes what flows through a result below together with all else, and does not know the sum of its
// gradients. So nothing goes that way, unless a hook or autograd::grad sees what comes there. Then forward runs again, by
// its operators.
class JointResult final : public torch::autograd::Node {
 public:
  // Makes the nodes of a call. `results`: differentiable ones. `edges`: to the differentiable tensors.
  static void connect(const std::shared_ptr<JointNode>& call, const std::vector<at::Tensor>& results,
                      const torch::autograd::edge_list& edges, const JointPlans& plans);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override;

 private:
  JointResult(std::shared_ptr<JointNode> call, size_t number, const std::vector<size_t>& below)
      : call_(std::move(call)), number_(number), below_(below) {}

  bool is_seen_below() const;

  const std::shared_ptr<JointNode> call_;
  const size_t number_;
  const std::vector<size_t>& below_;
};

// The node of a group of tensors that the same results depend on. A backward comes to a tensor from those results alone.
// Autograd inputs: one, which is always undefined. Autograd outputs: the gradients of the group.
class JointInputs final : public torch::autograd::Node {
 public:
  JointInputs(std::shared_ptr<JointNode> call, const JointPlans::Group& group, torch::autograd::edge_list edges)
      : Node(std::move(edges)), call_(std::move(call)), group_(group) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override;
  void will_release_variables() override { releases_ = true; }

 private:
  const std::shared_ptr<JointNode> call_;
  const JointPlans::Group& group_;
  bool releases_ = false;
};

}  // namespace sconce
