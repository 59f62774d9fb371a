#include "passes/required/specialize_autograd_zero.h"

#include "base/flat_map.h"
#include "ir/constant_operands.h"
#include "ir/schema_match.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <vector>

namespace sconce {
namespace {

// Whether a tensor, or each tensor in a list, is defined; for the result of prim::AutogradAnyNonZero, whether it is true.
enum class State : uint8_t { kUnknown, kDefined, kUndefined };

State join(State a, State b) { return a == b ? a : State::kUnknown; }

// The states of all values of a graph.
class Definednesses {
 public:
  explicit Definednesses(const Graph& graph) {
    for (const Value* input : graph.inputs()) {
      set_from_facts(*input);
    }
    visit(graph.body());
  }

  State at(const Value* value) const {
    const auto found = states_.find(value);
    return found == states_.end() ? State::kUnknown : found->second;
  }
  bool all(c10::ArrayRef<Value*> values, State state) const {
    return std::ranges::all_of(values, [&](const Value* value) { return at(value) == state; });
  }
  bool any(c10::ArrayRef<Value*> values, State state) const {
    return std::ranges::any_of(values, [&](const Value* value) { return at(value) == state; });
  }
  void set(const Value* value, State state) { states_[value] = state; }

 private:
  bool set_from_facts(const Value& value) {
    const bool is_told = value.facts() != nullptr && value.facts()->defined;
    if (is_told) {
      set(&value, *value.facts()->defined ? State::kDefined : State::kUndefined);
    }
    return is_told;
  }

  std::vector<State> visit(const Block& block) {
    for (const Node* node : block.nodes()) {
      visit(*node);
    }
    std::vector<State> returned;
    std::ranges::transform(block.returns(), std::back_inserter(returned), [this](const Value* value) { return at(value); });
    return returned;
  }

  void visit(const Node& node) {
    switch (static_cast<c10::unique_t>(node.kind())) {
      case prim::AutogradZero: set(node.output(), State::kUndefined); return;
      case prim::AutogradAdd: set(node.output(), state_of_sum(node)); return;
      case prim::AutogradAnyNonZero: set(node.output(), state_of_any(node.inputs())); return;
      case prim::GradOf: set_all(node, states_of_grad_of(node)); return;
      case prim::If: visit_branches(node); return;
      case prim::Loop: visit_loop(node); return;
      case prim::unchecked_cast:
      case aten::_unwrap_optional: set(node.output(), at(node.input(0))); return;
      default: break;
    }
    for (const Block* block : node.blocks()) {
      visit(*block);
    }
    const bool reads_list = node.opcode() == Opcode::kGetItem || node.opcode() == Opcode::kListUnpack;
    // The result of an operator is a defined tensor. Other nodes may return anything.
    const bool computes = node.schema() != nullptr && node.kind().is_aten() && node.op().dispatched.has_value();
    for (const Value* output : node.outputs()) {
      if (!set_from_facts(*output)) {
        set(output, reads_list                                   ? at(node.input(0))
                    : computes && holds_tensors(*output->type()) ? State::kDefined
                                                                 : State::kUnknown);
      }
    }
  }

  static bool holds_tensors(const c10::Type& type) {
    return type.kind() == c10::TypeKind::TensorType || type == *c10::ListType::ofTensors();
  }

  State state_of_sum(const Node& node) const {
    const State left = at(node.input(0));
    const State right = at(node.input(1));
    return left == State::kUndefined                             ? right
           : right == State::kUndefined                          ? left
           : left == State::kDefined || right == State::kDefined ? State::kDefined
                                                                 : State::kUnknown;
  }

  State state_of_any(c10::ArrayRef<Value*> gradients) const {
    return any(gradients, State::kDefined)     ? State::kDefined
           : all(gradients, State::kUndefined) ? State::kUndefined
                                               : State::kUnknown;
  }

  std::vector<State> states_of_grad_of(const Node& node) {
    std::vector<State> states = visit(*node.block(0));
    const State any = state_of_any(node.inputs());
    if (any != State::kDefined) {
      for (State& state : states) {
        state = any == State::kUndefined ? State::kUndefined : join(state, State::kUndefined);
      }
    }
    return states;
  }

  void visit_branches(const Node& node) {
    const auto constant = constant_bool(*node.input(0));
    const State condition = constant ? (*constant ? State::kDefined : State::kUndefined) : at(node.input(0));
    std::vector<State> states = visit(*node.block(0));
    const std::vector<State> other = visit(*node.block(1));
    for (size_t i = 0; i < states.size(); ++i) {
      states[i] = condition == State::kDefined     ? states[i]
                  : condition == State::kUndefined ? other[i]
                                                   : join(states[i], other[i]);
    }
    set_all(node, states);
  }

  // carried = initial states; repeat until stable: carried = join(carried, states that the body returns)
  void visit_loop(const Node& node) {
    const Block& body = *node.block(0);
    std::vector<State> carried;
    std::transform(node.inputs().begin() + 2, node.inputs().end(), std::back_inserter(carried),
                   [this](const Value* value) { return at(value); });
    for (bool is_stable = false; !is_stable;) {
      for (size_t i = 0; i < carried.size(); ++i) {
        set(body.params()[i + 1], carried[i]);
      }
      const std::vector<State> returned = visit(body);
      is_stable = true;
      for (size_t i = 0; i < carried.size(); ++i) {
        const State joined = join(carried[i], returned[i + 1]);
        is_stable = is_stable && joined == carried[i];
        carried[i] = joined;
      }
    }
    set_all(node, carried);
  }

  void set_all(const Node& node, const std::vector<State>& states) {
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      set(node.output(i), states[i]);
    }
  }

  FlatMap<const Value*, State> states_;
};

class Specializer {
 public:
  explicit Specializer(Graph& graph) : graph_(graph), states_(graph) {}

  bool run() {
    visit_block(graph_.body());
    if (graph_.body().first() != nullptr) {
      replace_undefined(graph_.inputs(), *graph_.body().first());
    }
    return changed_;
  }

 private:
  void visit_block(const Block& block) {
    for (Node* node = block.first(); node != nullptr;) {
      // Inlining a GradOf inserts its nodes after it, so they are visited next.
      Node* erased = visit_node(node);
      Node* next = node->next();
      if (erased != nullptr) {
        erased->erase();
      }
      node = next;
    }
  }

  // Returns the node itself if it has become dead.
  Node* visit_node(Node* node) {
    switch (static_cast<c10::unique_t>(node->kind())) {
      case prim::GradOf: return visit_grad_of(node);
      case prim::AutogradAdd: return visit_add(node);
      case prim::AutogradAnyNonZero: return visit_any_non_zero(node);
      default: break;
    }
    if (!node->blocks().empty()) {
      for (const Block* block : node->blocks()) {
        visit_block(*block);
      }
    }
    if (node->kind() != prim::AutogradZero) {
      replace_undefined_outputs(*node);
    }
    return nullptr;
  }

  void replace_undefined_outputs(Node& node) { replace_undefined(node.outputs(), node); }

  // Replaces the tensors that are always undefined. `position`: no node before it uses one of them.
  void replace_undefined(c10::ArrayRef<Value*> values, Node& position) {
    for (Value* value : values) {
      if (states_.at(value) == State::kUndefined && value->has_uses() &&
          value->type()->kind() == c10::TypeKind::TensorType) {
        Node* zero = graph_.create(prim::AutogradZero, {}, 1);
        resolve(*zero);
        zero->insert_before(&position);
        states_.set(zero->output(), State::kUndefined);
        value->replace_all_uses_with(zero->output());
        changed_ = true;
      }
    }
  }

  Node* visit_grad_of(Node* node) {
    if (states_.all(node->inputs(), State::kUndefined)) {
      replace_undefined_outputs(*node);
      changed_ = true;
      return node;
    }
    if (!states_.any(node->inputs(), State::kDefined)) {
      remove_undefined_inputs_of(*node);
      visit_block(*node->block(0));
      replace_undefined_outputs(*node);
      return nullptr;
    }
    const Block& block = *node->block(0);
    Node* position = node;
    while (Node* first = block.first()) {
      first->detach();
      first->insert_after(position);
      position = first;
    }
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      node->output(i)->replace_all_uses_with(block.returns()[i]);
    }
    changed_ = true;
    return node;
  }

  Node* visit_add(Node* node) {
    const State left = states_.at(node->input(0));
    const State right = states_.at(node->input(1));
    if (left == State::kUndefined || right == State::kUndefined) {
      node->output()->replace_all_uses_with(node->input(left == State::kUndefined ? 1 : 0));
      changed_ = true;
      return node;
    }
    if (left == State::kDefined && right == State::kDefined) {
      Value* alpha = graph_.insert_constant(1, node);
      Node* add = graph_.create(aten::add, {node->input(0), node->input(1), alpha}, 1);
      resolve(*add);
      add->set_location(node->location());
      add->insert_before(node);
      if (const TensorFacts* facts = node->output()->facts()) {
        add->output()->set_facts(*facts);
      }
      states_.set(add->output(), State::kDefined);
      node->output()->replace_all_uses_with(add->output());
      changed_ = true;
      return node;
    }
    return nullptr;
  }

  // Removes the inputs that decide nothing.
  void remove_undefined_inputs_of(Node& node) {
    for (size_t i = node.inputs().size(); i-- > 0;) {
      if (states_.at(node.input(i)) == State::kUndefined) {
        node.remove_input(i);
        changed_ = true;
      }
    }
  }

  Node* visit_any_non_zero(Node* node) {
    const State state = states_.at(node->output());
    if (state == State::kUnknown) {
      remove_undefined_inputs_of(*node);
      return nullptr;
    }
    node->output()->replace_all_uses_with(graph_.insert_constant(state == State::kDefined, node));
    changed_ = true;
    return node;
  }

  Graph& graph_;
  Definednesses states_;
  bool changed_ = false;
};

}  // namespace

bool specialize_autograd_zero(Graph& graph) {
  bool has_gradients = false;
  for_each_node(graph.body(), [&](const Node* node) {
    has_gradients = has_gradients || node->kind() == prim::GradOf || node->kind() == prim::AutogradAdd ||
                    node->kind() == prim::AutogradAnyNonZero;
  });
  return has_gradients && Specializer(graph).run();
}

}  // namespace sconce
