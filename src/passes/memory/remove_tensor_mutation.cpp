#include "passes/memory/remove_tensor_mutation.h"

#include "analysis/effects.h"
#include "analysis/known_layout.h"
#include "analysis/matrix_products.h"
#include "analysis/memory/alias_sets.h"
#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <unordered_set>

namespace sconce {
namespace {

// Returns whether the value is a number, a string or None, which do not promote a floating tensor.
bool is_plain_operand(const Value& value) {
  const c10::TypeKind kind = value.type()->kind();
  return kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType ||
         kind == c10::TypeKind::StringType || kind == c10::TypeKind::NoneType;
}

bool has_floating_dtype(const TensorFacts* facts) {
  return facts != nullptr && facts->dtype && c10::isFloatingType(*facts->dtype);
}

bool has_same_dtype(const TensorFacts* a, const TensorFacts* b) {
  return a != nullptr && b != nullptr && a->dtype && a->dtype == b->dtype;
}

bool is_known_without_gradient(const Value& value) {
  return value.facts() != nullptr && value.facts()->requires_grad == false;
}

// Returns the node of `block` that is `node` or contains it; null if there is none.
const Node* in_block(const Node* node, const Block* block) {
  while (node != nullptr && node->owning_block() != block) {
    node = node->owning_block()->owner();
  }
  return node;
}

class TensorMutation {
 public:
  explicit TensorMutation(const Graph& graph) {
    for_each_node(graph.body(), [&](Node* node) {
      sizes_may_change_ = sizes_may_change_ || node->op().may_change_sizes;
      layout_is_read_ = layout_is_read_ || node->op().reads == Reads::kStridesOrVersion;
      differentiates_ = differentiates_ || node->op().differentiates;
    });
  }

  bool run(const Block& block) {
    if (differentiates_) {
      return false;
    }
    bool changed = false;
    for (Node* node : block.nodes()) {
      for (const Block* nested : node->blocks()) {
        changed |= run(*nested);
      }
      changed |= remove(*node);
    }
    return changed;
  }

 private:
  bool remove(Node& write) const {
    const Op* variant = write.op().functional;
    if (variant == nullptr || effects_of(write).random || !is_tensor(*write.input(0)) || !fits(write) ||
        !target_is_unaliased(write)) {
      return false;
    }
    // The write returns its target, so later nodes may refer to the target by that name.
    Value* const target = write.input(0);
    const std::vector<Use> moved = uses_after(write);
    for (const Use& use : moved) {
      use.user->set_input(use.index, write.output());
    }
    if (!strides_stay(write) || (!write.op().functional->backward_ignores_result && !is_known_without_gradient(*target) &&
                                 is_written(*write.output()))) {
      for (const Use& use : moved) {
        use.user->set_input(use.index, target);
      }
      return false;
    }
    Node* node = write.graph().create(variant->kind, write.inputs());
    node->set_location(write.location())->insert_before(&write);
    node->set_op(*variant);
    node->output()->set_name(write.output()->name());
    if (const TensorFacts* facts = write.output()->facts() != nullptr ? write.output()->facts() : target->facts()) {
      node->output()->set_facts(*facts);
    }
    write.output()->replace_all_uses_with(node->output());
    write.erase();
    return true;
  }

  // Facts of an operand hold where it was made. An in-place operator may have changed its sizes since.
  const TensorFacts* lasting_facts(const Value& value) const { return sizes_may_change_ ? nullptr : value.facts(); }

  template <typename Condition>
  static bool all_other_tensors(const Node& write, const Condition& condition) {
    return std::all_of(write.inputs().begin() + 1, write.inputs().end(), [&](const Value* operand) {
      return is_plain_operand(*operand) || (is_tensor(*operand) && condition(*operand));
    });
  }

  // Returns whether the functional variant's result has the target's dtype and sizes.
  bool fits(const Node& write) const {
    const TensorFacts* target = write.input(0)->facts();
    const auto broadcasts = [&](const Value& operand) { return broadcasts_to(lasting_facts(operand), target); };
    switch (write.op().functional->in_place) {
      case VariantMatch::kNever: return false;
      case VariantMatch::kAlways: return true;
      case VariantMatch::kWithoutGradient:
        return is_known_without_gradient(*write.input(0)) && all_other_tensors(write, is_known_without_gradient);
      case VariantMatch::kPointwise:
        return has_floating_dtype(target) && all_other_tensors(write, [&](const Value& operand) {
                 return has_same_dtype(lasting_facts(operand), target) && broadcasts(operand);
               });
      case VariantMatch::kContiguous: return is_contiguous(target) && all_other_tensors(write, broadcasts);
    }
    return false;
  }

  // Returns whether the target was made earlier in this block, and no node since then holds it.
  bool target_is_unaliased(const Node& write) const {
    const Value& target = *write.input(0);
    const Node& origin = *target.node();
    const auto others = write.inputs().slice(1);
    if (!is_known_without_gradient(target) && std::find(others.begin(), others.end(), &target) != others.end()) {
      return false;  // `x.mul_(x)`: backward raises, because it has saved what is written
    }
    if (origin.owning_block() != write.owning_block() || !produces_new_tensor(origin) ||
        !(is_known_without_gradient(target) || origin.op().backward_ignores_result)) {
      return false;
    }
    std::unordered_set<const Node*> between;
    for (const Node* node = origin.next(); node != &write; node = node->next()) {
      // Without grad mode, an in-place operator leaves autograd's graph as it is; its functional variant records
      // none.
      if (changes_state(*node)) {
        return false;
      }
      between.insert(node);
    }
    return std::all_of(target.uses().begin(), target.uses().end(), [&](const Use& use) {
      const bool is_before = between.contains(in_block(use.user, write.owning_block()));
      return !is_before || has_no_observable_effect(*use.user);
    });
  }

  static bool changes_state(const Node& node) {
    bool changes = effects_of(node).state || effects_of(node).unknown;
    for (const Block* block : node.blocks()) {
      for_each_node(*block,
                    [&](const Node* nested) { changes |= effects_of(*nested).state || effects_of(*nested).unknown; });
    }
    return changes;
  }

  // Returns whether a later write to the operand is unobservable through the reader's results: none is a view of it,
  // and backward has saved nothing of it.
  static bool has_no_observable_effect(const Node& reader) {
    return reader.op().reads == Reads::kMetadata ||
           (produces_new_tensor(reader) && !effects_of(reader).any() &&
            std::all_of(reader.inputs().begin(), reader.inputs().end(), [](const Value* operand) {
              return is_plain_operand(*operand) || (is_tensor(*operand) && is_known_without_gradient(*operand));
            }));
  }

  static std::vector<Use> uses_after(const Node& write) {
    std::unordered_set<const Node*> before = {&write};
    for (const Node* node = write.input(0)->node(); node != &write; node = node->next()) {
      before.insert(node);
    }
    std::vector<Use> after;
    for (const Use& use : write.input(0)->uses()) {
      if (!before.contains(in_block(use.user, write.owning_block()))) {
        after.push_back(use);
      }
    }
    return after;
  }

  // Returns whether a later node writes the tensor or a view of it. Some in-place operators save what they have written for
  // backward, which then raises; their functional variants save their operands.
  static bool is_written(const Value& value) {
    return std::any_of(value.uses().begin(), value.uses().end(), [](const Use& use) {
      const Node& user = *use.user;
      if (user.schema() == nullptr || effects_of(user).unknown) {
        return user.schema() != nullptr;
      }
      return writes(user, [&](size_t index) { return index == use.index; }) ||
             (!produces_new_tensor(user) && std::any_of(user.outputs().begin(), user.outputs().end(),
                                                        [](const Value* output) { return is_written(*output); }));
    });
  }

  // An operator may choose the strides of dimensions of one element freely. They must stay the same if the result
  // escapes, or if facts rely on them.
  bool strides_stay(const Node& write) const {
    if (write.input(0)->facts() != nullptr && write.input(0)->facts()->contiguous) {
      return all_other_tensors(write, [&](const Value& operand) {
        const TensorFacts* facts = lasting_facts(operand);
        return facts != nullptr && facts->contiguous;
      });
    }
    std::unordered_set<const Value*> seen;
    if (!layout_is_read_ && !may_be_seen(*write.output(), seen)) {
      return true;
    }
    const TensorFacts* target = write.input(0)->facts();
    return is_contiguous(target) && all_other_tensors(write, [&](const Value& operand) {
             const TensorFacts* facts = lasting_facts(operand);
             return is_contiguous(facts) && facts->sizes == target->sizes;
           });
  }

  template <typename Condition>
  static bool writes(const Node& node, const Condition& concerns) {
    const size_t formals = std::min(node.schema()->arguments().size(), node.inputs().size());
    for (size_t i = 0; i < formals; ++i) {
      if (node.op().writes_argument(i) && concerns(i)) {
        return true;
      }
    }
    return false;
  }

  // Returns whether the tensor, a view of it, or a value computed from it may escape the operators of the block. Most
  // operators choose the layout of their results by that of their operands.
  static bool may_be_seen(const Value& value, std::unordered_set<const Value*>& seen) {
    return seen.insert(&value).second && std::any_of(value.uses().begin(), value.uses().end(), [&](const Use& use) {
             const Node& user = *use.user;
             if (user.opcode() == Opcode::kListConstruct) {
               return may_be_seen(*user.output(), seen);
             }
             if (user.schema() == nullptr || effects_of(user).unknown) {
               return true;
             }
             if (user.op().functional != nullptr) {
               return use.index == 0 && may_be_seen(*user.output(), seen);
             }
             if (writes(user, [&](size_t index) { return index == use.index || !is_tensor(*user.input(index)); })) {
               return true;  // the operator may store the tensor in a container
             }
             return std::any_of(user.outputs().begin(), user.outputs().end(), [&](const Value* output) {
               return (memory_kinds_within(output->type()) & ~kListMemory) != kNoMemory &&
                      !produces_contiguous_product(user) && (!is_tensor(*output) || may_be_seen(*output, seen));
             });
           });
  }

  bool sizes_may_change_ = false;
  bool layout_is_read_ = false;
  bool differentiates_ = false;
};

}  // namespace

bool remove_tensor_mutation(Graph& graph) { return TensorMutation(graph).run(graph.body()); }

}  // namespace sconce
