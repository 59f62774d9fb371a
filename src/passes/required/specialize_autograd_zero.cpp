#include "passes/required/specialize_autograd_zero.h"

#include "base/flat_map.h"
#include "ir/schema_match.h"

#include <algorithm>

namespace sconce {
namespace {

enum class State { kUnknown, kDefined, kUndefined };

class Specializer {
 public:
  explicit Specializer(Graph& graph) : graph_(graph) {}

  bool run() {
    for (const Value* input : graph_.inputs()) {
      if (input->facts() != nullptr && input->facts()->defined) {
        states_[input] = *input->facts()->defined ? State::kDefined : State::kUndefined;
      }
    }
    visit_block(graph_.body());
    return changed_;
  }

 private:
  State state_of(const Value* value) const {
    const auto found = states_.find(value);
    return found == states_.end() ? State::kUnknown : found->second;
  }

  bool all(c10::ArrayRef<Value*> values, State state) const {
    return std::all_of(values.begin(), values.end(), [&](const Value* value) { return state_of(value) == state; });
  }
  bool any(c10::ArrayRef<Value*> values, State state) const {
    return std::any_of(values.begin(), values.end(), [&](const Value* value) { return state_of(value) == state; });
  }

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
    if (node->kind() == prim::AutogradZero) {
      states_[node->output()] = State::kUndefined;
    } else if (node->kind() == prim::GradOf) {
      return visit_grad_of(node);
    } else if (node->kind() == prim::AutogradAdd) {
      return visit_add(node);
    } else if (node->kind() == prim::AutogradAnyNonZero) {
      return visit_any_non_zero(node);
    } else {
      for (const Block* block : node->blocks()) {
        visit_block(*block);
      }
      // The result of an operator is a defined tensor. Control flow, lists and unknown nodes may return anything.
      const bool computes = node->schema() != nullptr && node->kind().is_aten() && node->op().dispatched.has_value();
      for (const Value* output : node->outputs()) {
        if (output->facts() != nullptr && output->facts()->defined == false) {
          states_[output] = State::kUndefined;
        } else if (computes && output->type()->kind() == c10::TypeKind::TensorType) {
          states_[output] = State::kDefined;
        }
      }
    }
    return nullptr;
  }

  Node* visit_grad_of(Node* node) {
    if (all(node->inputs(), State::kUndefined)) {
      for (Value* output : node->outputs()) {
        Node* zero = graph_.create(prim::AutogradZero, {}, 1);
        resolve(*zero);
        zero->insert_before(node);
        states_[zero->output()] = State::kUndefined;
        output->replace_all_uses_with(zero->output());
      }
      changed_ = true;
      return node;
    }
    if (!any(node->inputs(), State::kDefined)) {
      visit_block(*node->block(0));
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
    const State left = state_of(node->input(0));
    const State right = state_of(node->input(1));
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
      states_[add->output()] = State::kDefined;
      node->output()->replace_all_uses_with(add->output());
      changed_ = true;
      return node;
    }
    return nullptr;
  }

  Node* visit_any_non_zero(Node* node) {
    const bool defined = any(node->inputs(), State::kDefined);
    if (!defined && !all(node->inputs(), State::kUndefined)) {
      return nullptr;
    }
    node->output()->replace_all_uses_with(graph_.insert_constant(defined, node));
    changed_ = true;
    return node;
  }

  Graph& graph_;
  FlatMap<const Value*, State> states_;
  bool changed_ = false;
};

}  // namespace

bool specialize_autograd_zero(Graph& graph) { return Specializer(graph).run(); }

}  // namespace sconce
