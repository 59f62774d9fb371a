// BackwardSchedule: the autograd nodes of one backward, in the order in which the engine runs them.
#pragma once

#include "base/flat_map.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sconce {

// One autograd node of a backward.
struct BackwardCall {
  torch::dynamo::autograd::NodeCall* entry = nullptr;  // of the walk's `compiler`; null for a leaf and an opaque node
  std::shared_ptr<torch::autograd::Node> node;
  bool is_leaf = false;    // an AccumulateGrad: adds its gradient to a leaf's
  bool is_needed = true;   // false: only its incoming gradients are asked for
  bool is_opaque = false;  // its formula cannot be recorded
  size_t first_size = 0;   // of its results, among the walk's sizes
  struct Capture {
    int input;
    int output;  // of the backward
  };
  std::vector<Capture> captures;  // incoming gradients that autograd::grad returns
};

// Reads the graph and changes nothing. Saved tensors are unpacked, which checks their versions, and raises LibTorch's error
// for a second backward.
class BackwardSchedule {
 public:
  BackwardSchedule(const std::shared_ptr<torch::autograd::Node>& root, const torch::autograd::GraphTask& task);

  // Why LibTorch's engine has to run this backward; empty if it can be recorded.
  const std::string& why_not() const { return why_not_; }
  const std::vector<BackwardCall>& calls() const { return calls_; }
  // Returns whether hooks or formulas of other code run, which may read the gradients of leaves.
  bool runs_other_code() const { return runs_other_code_; }
  // Returns whether anything but a recorded graph and leaves without hooks runs.
  bool has_nodes_on_host() const { return has_nodes_on_host_; }
  // Equal structures and sizes: a trace of one backward computes the other.
  const std::string& structure() const { return structure_; }
  // The sizes on which a trace may depend: those of each call's results, what nodes have saved, and of saved tensors.
  const std::vector<int64_t>& sizes() const { return sizes_; }
  size_t first_saved_size() const { return first_saved_size_; }
  size_t first_size_of_tensors() const { return first_size_of_tensors_; }
  // Returns whether an edge of a call leads to the node, and the node is to run.
  bool runs(torch::autograd::Node& node) const { return targets_.count(&node) != 0; }
  // The tensors that nodes have saved, each once. What nodes have saved while forward was recorded stands for another
  // tensor, which is the one here; `saved_tensors` has both as nodes have them.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  const std::vector<at::Tensor>& saved_tensors() const { return compiler_.tensor_args.inputs; }
  torch::dynamo::autograd::AutogradCompilerCall& compiler() { return compiler_; }

 private:
  void add(const std::shared_ptr<torch::autograd::Node>& node, const torch::autograd::GraphTask& task);
  void collect(BackwardCall& call);
  void finish_key();

  // A node that edges lead to.
  struct Target {
    int32_t number = 0;  // in the order in which the walk has met them
    int edges_left = 0;
  };
  Target& target_of(torch::autograd::Node& node, const torch::autograd::GraphTask& task);
  static bool should_run(torch::autograd::Node& node, const torch::autograd::GraphTask& task);

  FlatMap<torch::autograd::Node*, Target> targets_;

  torch::dynamo::autograd::AutogradCompilerCall compiler_{torch::dynamo::autograd::SizeInput::STATIC};
  std::vector<BackwardCall> calls_;
  std::vector<at::Tensor> tensors_;
  std::string structure_;
  std::vector<int64_t> sizes_;
  size_t first_saved_size_ = 0;
  size_t first_size_of_tensors_ = 0;
  std::string why_not_;
  bool runs_other_code_ = false;
  bool has_nodes_on_host_ = false;
};

}  // namespace sconce
