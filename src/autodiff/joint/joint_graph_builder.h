// JointGraphBuilder: the walk of differentiate_forward and differentiate_block (joint_graph.h), in five files:
//
//   joint_graph_builder.cpp               the order of the walk; inputs and outputs of the joint graph
//   joint_graph_builder_dependences.cpp   which values depend on which differentiable inputs
//   joint_graph_builder_texts.cpp         gradients of operators
//   joint_graph_builder_lists.cpp         of joins and cuts of lists
//   joint_graph_builder_blocks.cpp        of branches and loops
//
// The walk down enters each node that depends on a differentiable input on a tape. It replaces operators that have a forward
// text, and differentiates blocks. The walk up takes the tape from its end.
#pragma once

#include "analysis/dependence.h"
#include "autodiff/joint/block_gradient.h"
#include "autodiff/joint/gradient_sums.h"
#include "autodiff/joint/joint_graph.h"
#include "base/flat_map.h"
#include "load/compile_op_row.h"

#include <vector>

namespace sconce {

class JointGraphBuilder {
 public:
  explicit JointGraphBuilder(JointGraph joint);

  // `is_differentiable`: by input of the forward graph.
  JointGraph run(const std::vector<bool>& is_differentiable);

 private:
  using Values = std::vector<Value*>;
  using Gradients = std::vector<Gradient>;

  enum class Kind : uint8_t {
    kRule,        // an operator that has a gradient rule
    kJoin,        // a cat or stack of a list that a prim::ListConstruct makes
    kFilledJoin,  // a cat or stack of a list that a branch or loop fills
    kUnpack,      // the parts of a tensor that was cut
    kAppend,      // to a list that a branch or loop fills
    kBlocks,      // a branch or loop
  };

  // A node of the forward graph that gradients flow through.
  struct Differentiated {
    Kind kind;
    Node* node;
    Values results;
    const OpGradient* gradient = nullptr;  // of kRule
    Values saved;                          // of kRule, by its forward text; of kAppend, the element's index; of a loop, the
                                           // number of its iterations
    std::vector<BlockGradient> blocks;     // of kBlocks
    bool is_recorded = false;              // of kRule
  };

  Value* input(size_t differentiable) const { return graph_.inputs()[joint_.signature.inputs[differentiable]]; }
  bool is_reached(const Value* value) const { return dependences_.contains(value); }
  bool reaches(const Node& node) const;

  // ---- down
  void enter(Node& node);
  void enter_operator(Node& node);
  void enter_composed(Node& node, const OpGradient& gradient);
  void expand(Differentiated& each);
  Value* instantiate(const Graph& text, const Values& arguments, const Node& node, Node* position);

  // ---- dependences
  void note_dependence(const Node& node, const Values& results);
  void note_condition(const Node& node, const Values& results);
  void note(const Value* value, Dependence dependence);
  void note_loop_conditions(const Differentiated& each, Node* counted);
  void note_block_dependences(const Differentiated& each);

  // ---- up
  Value* add_gradient_input(const Value& value);
  void begin_with_outputs();
  void add_gradients_of_intermediates();
  void add_gradient_of_intermediate(Value* value);
  void return_gradients();
  Gradient complete_gradient(Value* result);
  void differentiate(const Differentiated& each);

  // ---- texts
  Values fill(const Differentiated& each, const Gradients& gradients);
  static bool has_sizes_of_others(const Differentiated& each, const Gradients& gradients, size_t at);
  Value* insert_missing_gradient(const Differentiated& each, const Gradients& gradients, size_t at, Value* saved_sizes,
                                 Node* position);
  // An operand and what an operator adds to its gradient.
  using Part = std::pair<Value*, Value*>;
  Value* insert_defined(const Gradients& gradients);
  std::vector<Part> parts_by_text(const Differentiated& each, const Gradients& gradients, const Values& filled);
  Value* as_tensor(Value* entry);
  void add_parts(const Differentiated& each, const Gradients& gradients, Node* before, const std::vector<Part>& parts);

  // ---- lists
  void enter_append(Node& node);
  std::vector<Part> parts_of_join(const Differentiated& each, Value* gradient);
  void differentiate_filled_join(const Differentiated& each, const Gradient& gradient);
  Value* sizes_of_elements(Value* list, Value* dim);
  Value* insert_undefined_elements(Value* length, Node* position);
  Value* insert_undefined_list(Value* list, Node* position);
  Part part_of_cut(const Differentiated& each, const Values& gradients);
  void differentiate_append(const Differentiated& each);

  // ---- branches and loops
  void enter_blocks(Node& node);
  void differentiate_blocks(const Differentiated& each);
  void differentiate_loop(const Differentiated& each, const Gradients& gradients);
  void differentiate_branches(const Differentiated& each, const Gradients& gradients);
  Value* initial_gradient(const Value& param, Value* result, const std::vector<Value*>& sources, Node* position);
  // Copies the backward graph of a block to before `position`. `of_return`: the gradient of a return, by number.
  // `iteration`: which run of the block. Returns the gradients of the block's inputs.
  Values instantiate_backward(const BlockGradient& block, const std::vector<Value*>& of_return, Value* iteration,
                              Node* position);

  Graph& graph_;
  Node* const end_;
  JointGraph joint_;
  std::vector<Differentiated> tape_;
  std::vector<Node*> replaced_;                    // by their forward texts; they stay until the end, for their facts
  FlatMap<const Value*, Dependence> dependences_;  // of the values that depend on a differentiable input
  // If a loop runs zero iterations, its outputs are its initial values and depend on fewer inputs. They may then require no
  // gradient.
  struct Condition {
    Value* holds = nullptr;  // a bool: one of the loops runs an iteration
    Dependence otherwise;
  };
  FlatMap<const Value*, Condition> conditions_;
  GradientSums sums_;
  // The gradient of a list that a branch or loop fills: the gradients of the elements, as a list.
  struct ListGradient {
    Value* list = nullptr;
    std::vector<Value*> sources;  // all elements are defined where one of these is; empty: each may be undefined
  };
  FlatMap<const Value*, ListGradient> list_gradients_;
  FlatMap<const Value*, Value*> gradients_of_intermediates_;
  Value* records_ = nullptr;
};

}  // namespace sconce
