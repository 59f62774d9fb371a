// BackwardNode: the autograd node that a run of a differentiable subgraph records.
#pragma once

#include "plan/autograd/differentiable_function.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace sconce {

// Runs the backward plan of one run of a DifferentiableFunction. Autograd inputs: one per differentiable output; a
// list contributes one per element. Autograd outputs: one per differentiable input.
//
// Saved inputs and outputs carry autograd's version checks, and so does what branches and loops save, which may be outputs
// too. Outputs are saved without a reference cycle. Engine threads may call `apply` at once.
class BackwardNode final : public torch::autograd::Node {
 public:
  // Makes a node with edges to the operands that require a gradient, and saves those that backward reads. `before`: what
  // DifferentiableFunction::operators run with; null if there are none.
  static std::shared_ptr<BackwardNode> make(std::shared_ptr<const DifferentiableFunction> function,
                                            c10::ArrayRef<c10::IValue> operands,
                                            std::shared_ptr<const OperandsBefore> before = nullptr);

  // Connects the outputs that depend on such an operand, and saves outputs and intermediates. `results`: what the forward
  // plan returned. Replaces outputs that backward saves by tensors that share their memory and version.
  void connect(torch::jit::Stack& results);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  // Returns the gradients of the inputs. `gradients`: of outputs. `of_intermediates`: empty, or one per tensor in the
  // differentiable intermediates.
  torch::autograd::variable_list run(torch::autograd::variable_list&& gradients,
                                     torch::autograd::variable_list&& of_intermediates);
  std::string name() const override { return function_->name; }
  const DifferentiableFunction& function() const { return *function_; }
  // Returns what the node keeps for backward: saved inputs, saved outputs, then intermediates. Does not check versions.
  std::vector<c10::IValue> saved_values();
  void release_variables() override;
  void will_release_variables() override { releases_ = true; }

 private:
  explicit BackwardNode(std::shared_ptr<const DifferentiableFunction> function) : function_(std::move(function)) {}

  // A saved operand or output: a tensor, which autograd checks, or another value.
  struct Saved {
    torch::autograd::SavedVariable tensor;
    c10::IValue value;
    int64_t version = 0;  // of a tensor, when it was saved
    bool is_tensor = false;
  };
  using OwnTensors = std::unordered_map<at::TensorImpl*, at::Tensor>;
  static Saved saved_of(const c10::IValue& value, bool is_output);
  // The gradients of a run: which are defined, and the paths that the run's plan takes them (BackwardPlan).
  struct Incoming {
    const std::vector<bool>& is_defined;
    const std::vector<std::vector<bool>>& saved_paths;
  };
  void push_saved(torch::jit::Stack& stack, const Incoming& incoming, bool records);
  torch::autograd::variable_list run_plan_of_form(const BackwardPlan& plan, torch::autograd::variable_list&& gradients,
                                                  torch::autograd::variable_list&& of_intermediates,
                                                  std::vector<bool> is_defined);
  // Runs backward by operators, with autograd in grad mode.
  torch::autograd::variable_list run_operators(const torch::autograd::variable_list& gradients,
                                               const std::vector<bool>& is_defined);
  std::shared_ptr<const OperandsBefore> operands_before();
  // Returns the numbers of the inputs whose gradients the engine takes.
  std::vector<size_t> wanted_gradients() const;
  // Gives a gradient the strides that the plans of a recorded call take.
  void fit_strides(at::Tensor& gradient, size_t output) const;
  // Returns whether a gradient goes through the saved value to an input that needs one.
  bool is_needed(size_t number, const Incoming& incoming) const;
  // `number`: the saved value's, counting inputs, then outputs.
  c10::IValue unpack(const Saved& saved, size_t number, const Incoming& incoming, bool is_output);
  at::Tensor connected_output(const at::Tensor& output, bool depends, OwnTensors& own);
  // Replaces the intermediates, from that place of the stack on, by functions of the operands.
  void connect_intermediates(torch::jit::Stack& stack, size_t first);
  void check_versions() const;
  bool is_lost(size_t output) const;
  void check_is_kept(const std::vector<bool>& is_defined) const;
  bool frees_tensors() const;
  void drop(const std::vector<bool>& is_defined);

  const std::shared_ptr<const DifferentiableFunction> function_;
  // Per differentiable input. A view whose base came to require a gradient after the view was made requires one too, and
  // has no edge: as in eager execution, results require a gradient that reaches no leaf.
  std::vector<bool> requires_grad_;
  std::vector<size_t> first_slots_;  // per differentiable output: its first input of this node; then the end
  // Until `connect`, if an output may be an operand: the operands. No other tensor takes their addresses meanwhile.
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>> given_;
  std::vector<at::Tensor> written_;            // until `connect`: DifferentiableFunction::written_inputs
  std::vector<std::vector<int64_t>> strides_;  // of the differentiable outputs of a recorded call
  std::mutex mutex_;                           // guards what follows
  std::vector<Saved> inputs_;
  std::vector<Saved> outputs_;
  std::vector<c10::IValue> intermediates_;
  std::shared_ptr<const OperandsBefore> before_;
  std::vector<int64_t> versions_;  // of the tensors in lists among the intermediates
  std::vector<bool> freed_;        // per differentiable output, once one is: whether its backward has run for the last time
  bool has_intermediates_node_ = false;
  bool releases_ = false;  // the values are not needed after this backward
};

// The node of the intermediates that a backward of backward reads: what flows to them comes to the operands. Hooks of the
// run's outputs are those of `run`'s node, and are not called. Autograd inputs: one per tensor in the differentiable
// intermediates. Autograd outputs: those of the run's node.
class IntermediatesNode final : public torch::autograd::Node {
 public:
  explicit IntermediatesNode(std::shared_ptr<BackwardNode> run)
      : Node(torch::autograd::edge_list(run->next_edges())), run_(std::move(run)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return run_->name(); }

 private:
  const std::shared_ptr<BackwardNode> run_;
};

}  // namespace sconce
