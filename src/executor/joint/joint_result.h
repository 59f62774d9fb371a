// JointResult: the autograd node of one of several results of a call by a joint recording.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace sconce {

class JointNode;

// Passes the result's gradient on to the call's node, so that hooks of the result are called if, and only if, a backward
// comes through it. Autograd inputs: one. Autograd outputs, as edges:
//
//   (call, i)      the gradient, if nobody sees a gradient of the results below: those that the result is computed from
//   (call, n + i)  the gradient, if somebody does
//   (below, 0)     then also what flows to each result below, where hooks and autograd::grad see the sum of all gradients
//
// The recorded backward computes what flows through a result together with all else, and has no sum to show. So the latter
// two cost a run of forward by its operators. A call without results below has the first edge alone.
class JointResult final : public torch::autograd::Node {
 public:
  // Makes the nodes of a call's differentiable results. `below`: JointPlans.
  static void connect(const std::shared_ptr<JointNode>& call, const std::vector<at::Tensor>& results,
                      const std::vector<std::vector<size_t>>& below);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override;

 private:
  JointResult(JointNode& call, size_t number, const std::vector<size_t>& below)
      : call_(call), number_(number), below_(below) {}

  bool is_seen_below() const;

  JointNode& call_;  // which an edge holds
  const size_t number_;
  const std::vector<size_t>& below_;
};

}  // namespace sconce
