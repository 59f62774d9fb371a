// The walk of differentiate_forward and differentiate_block (joint_graph.h).
#pragma once

#include "autodiff/block_gradient.h"
#include "autodiff/dependence.h"
#include "autodiff/gradient_sums.h"
#include "autodiff/joint_graph.h"
#include "base/flat_map.h"
#include "load/compile_op_row.h"

#include <memory>
#include <vector>

namespace sconce {

class Differentiation {
 public:
  explicit Differentiation(JointGraph joint);

  // `is_differentiable`: by input of the forward graph.
  JointGraph run(const std::vector<bool>& is_differentiable);

 private:
  using Values = std::vector<Value*>;
  using Gradients = std::vector<Gradient>;

  enum class Kind : uint8_t {
    kText,        // an operator whose row has a backward text
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
    const OpGradient* gradient = nullptr;  // of kText
    Values saved;                          // of kText, by its forward text; of kAppend, the element's index; of a loop, the
                                           // number of its iterations
    std::vector<BlockGradient> blocks;     // of kBlocks
  };

  Value* input(size_t differentiable) const {
    return graph_.inputs()[static_cast<size_t>(joint_.differentiable_inputs[differentiable])];
  }
  bool is_reached(const Value* value) const { return dependences_.contains(value); }
  bool reaches(const Node& node) const;

  // ---- forward: which values depend on differentiable inputs (joint_graph.cpp, joint_blocks.cpp)
  void enter(Node& node);
  void note_dependence(const Node& node, const Values& results);
  void note_condition(const Node& node, const Values& results);
  void note(const Value* value, Dependence dependence);
  void expand(Differentiated& each);
  Value* instantiate(const Graph& text, const Values& arguments, const Node& node, Node* position);
  void enter_append(Node& node);
  void enter_blocks(Node& node);
  void note_loop_conditions(const Differentiated& each, Node* counted);
  bool is_joined(const Value& list) const;
  void note_block_dependences(const Differentiated& each);

  // ---- backward
  Value* add_gradient_input(const Value& value);
  void begin_with_outputs();
  void add_inner_gradients();
  void add_inner_gradient(Value* value);
  void return_gradients();
  Gradient complete_gradient(Value* result);
  void differentiate(const Differentiated& each);
  Gradients fill(const Differentiated& each, Gradients gradients);
  void differentiate_by_text(const Differentiated& each, const Gradients& gradients);
  Value* as_tensor(Value* entry);

  // ---- lists (joint_lists.cpp)
  void differentiate_join(const Differentiated& each, const Gradient& gradient);
  void differentiate_filled_join(const Differentiated& each, const Gradient& gradient);
  Value* sizes_of_elements(Value* list, Value* dim);
  void differentiate_cut(const Differentiated& each, const Gradients& gradients);
  void differentiate_append(const Differentiated& each);

  // ---- branches and loops (joint_blocks.cpp)
  void differentiate_blocks(const Differentiated& each);
  void differentiate_loop(const Differentiated& each, const Gradients& gradients, Value* is_there);
  void differentiate_branches(const Differentiated& each, const Gradients& gradients, Value* is_there);
  // Copies the backward graph of a block to before `position`. `of_return`: the gradient of a return, by number. `visit`:
  // which run of the block. Returns the gradients of the block's inputs.
  Values instantiate_backward(const BlockGradient& block, const std::vector<Value*>& of_return, Value* visit,
                              Node* position);

  Graph& graph_;
  Node* const end_;
  JointGraph joint_;
  std::vector<Differentiated> tape_;
  FlatMap<const Value*, Dependence> dependences_;  // of the values that depend on a differentiable input
  // A value depends on fewer inputs where loops run no iteration. It may require no gradient then.
  struct Condition {
    Value* holds = nullptr;  // a bool: one of the loops runs an iteration
    Dependence otherwise;
  };
  FlatMap<const Value*, Condition> conditions_;
  GradientSums sums_;
  // The gradient of a list that a branch or loop fills: the gradients of the elements, as a list.
  struct ListGradient {
    Value* list = nullptr;
    bool is_defined = false;  // every element
  };
  FlatMap<const Value*, ListGradient> list_gradients_;
  FlatMap<const Value*, Value*> inner_;
};

}  // namespace sconce
