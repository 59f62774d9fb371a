#include "autodiff/select/differentiable_blocks.h"

#include "analysis/effects.h"
#include "analysis/memory/appended_lists.h"
#include "ir/constant_operands.h"

#include <algorithm>

namespace sconce {
namespace {

bool is_block_node(const Node& node) { return node.opcode() == Opcode::kIf || node.opcode() == Opcode::kLoop; }

// Returns the tensor whose memory the value may be: what a chain of views was made of, or the value itself.
const Value& viewed_by(const Value& value) {
  const Node& node = *value.node();
  if (node.opcode() == Opcode::kListUnpack && cuts_list(*node.input(0)->node())) {
    return viewed_by(*node.input(0)->node()->input(0));
  }
  const bool is_view = node.blocks().empty() && is_cheap_view(node) && !node.inputs().empty() && is_tensor(*node.input(0));
  return is_view ? viewed_by(*node.input(0)) : value;
}

class BlockCheck {
 public:
  BlockCheck(const Roles& roles, Visibility& visibility, const Block* ignored)
      : roles_(roles), visibility_(visibility), ignored_(ignored) {}

  bool is_differentiable(const Node& node) {
    const c10::ArrayRef<Value*> carried = node.opcode() == Opcode::kLoop ? node.inputs().slice(2) : c10::ArrayRef<Value*>();
    return is_block_node(node) && are_numbers_or_real(carried) && are_numbers_or_real(node.outputs()) && is_certain(node) &&
           std::ranges::all_of(node.blocks(), [this](const Block* block) { return is_differentiable(*block); });
  }

 private:
  bool is_differentiable(const Block& block) {
    return are_numbers_or_real(block.params()) && are_numbers_or_real(block.returns()) &&
           std::ranges::none_of(block.params(), [this](const Value* param) { return is_shared(*param); }) &&
           std::ranges::all_of(block.returns(), [this](const Value* value) { return is_own(*value); }) &&
           may_have_all(block);
  }

  bool may_have_all(const Block& block) {
    for (const Node* node : block.nodes()) {
      if (!may_have(*node)) {
        return false;
      }
    }
    return true;
  }

  // Returns whether it is known which results require a gradient after every run of a block.
  static bool is_certain(const Node& node) {
    const size_t first = node.opcode() == Opcode::kLoop ? 1 : 0;
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      for (const Block* block : node.blocks()) {
        if (may_require_grad(*node.output(i)) && !requires_grad(*block->returns()[first + i])) {
          return false;
        }
      }
    }
    return true;
  }

  // Returns whether that is known of a loop that runs no iteration too.
  static bool begins_certain(const Node& node) {
    for (size_t i = 0; i < node.outputs().size() && node.opcode() == Opcode::kLoop; ++i) {
      if (may_require_grad(*node.output(i)) && !requires_grad(*node.input(i + 2))) {
        return false;
      }
    }
    return true;
  }

  static bool are_numbers_or_real(c10::ArrayRef<Value*> values) {
    return std::ranges::all_of(
        values, [](const Value* value) { return is_tensor(*value) ? is_real_tensor(*value) : is_number_like(*value); });
  }

  bool may_have(const Node& node) {
    if (std::ranges::any_of(node.outputs(), [this](const Value* output) { return is_shared(*output); })) {
      return false;
    }
    if (!node.blocks().empty()) {
      return begins_certain(node) && is_differentiable(node);
    }
    switch (node.opcode()) {
      case Opcode::kConstant: return true;
      case Opcode::kAppend: return is_real_tensor(*node.input(1)) && is_own(*node.input(1)) && appended_list(*node.input(0));
      case Opcode::kListConstruct:
        if (const auto list = appended_list(*node.output())) {
          return joining_node(*list) != nullptr && may_join(*node.output(), visibility_);
        }
        break;
      default: break;
    }
    return roles_.of(node) != Role::kOutside && !effects_of(node).writes && has_its_list(node);
  }

  // Returns whether the list that the node joins or unpacks is made in its block.
  static bool has_its_list(const Node& node) {
    const bool takes_list = joins_list(node) || joins_appended_list(node) || node.opcode() == Opcode::kListUnpack;
    return !takes_list || node.input(0)->node()->owning_block() == node.owning_block();
  }

  // Returns whether the caller can see the value, and a gradient flows through what is computed of it here. One autograd
  // node for both would hide the value's own gradient from hooks.
  //
  //   block0(…): %a = tanh(%x); %b = exp(%a); append(%visible, %a) …      %a is shared: used here, and seen
  //   block0(…): %a = tanh(%x) -> (%a)                                    not shared: returned, and not used here
  bool is_shared(const Value& value) {
    if (!may_require_grad(value) || !visibility_.is_visible(value)) {
      return false;
    }
    const bool ignores_return = ignored_ != nullptr && value.node()->owning_block() == ignored_;
    bool is_returned = false;
    bool is_used = false;
    bool is_seen = false;
    for (const Use& use : value.uses()) {
      const bool returns = use.user->opcode() == Opcode::kReturn;
      is_returned |= returns;
      is_used |= use.user->opcode() == Opcode::kLoop || (!returns && roles_.of(*use.user) == Role::kDifferentiated);
      is_seen |= !returns && visibility_.exposes(use);
    }
    return (is_used && (is_seen || !ignores_return)) || (is_seen && is_returned);
  }

  // Returns whether the value is no view of a tensor from outside of the block.
  static bool is_own(const Value& value) {
    const Value& memory = viewed_by(value);
    return !is_tensor(value) || &memory == &value ||
           (memory.node()->opcode() != Opcode::kParam && memory.node()->blocks().empty() &&
            memory.node()->owning_block() == value.node()->owning_block());
  }

  const Roles& roles_;
  Visibility& visibility_;
  const Block* const ignored_;  // what this block returns counts as not visible
};

bool carries_gradient_in_blocks(const Node& node) {
  return !lists_filled_by(node).empty() ||
         std::ranges::any_of(node.outputs(), [](const Value* output) { return may_require_grad(*output); });
}

}  // namespace

bool is_differentiable_block_node(const Node& node, const Roles& roles, Visibility& visibility) {
  return carries_gradient_in_blocks(node) && BlockCheck(roles, visibility, nullptr).is_differentiable(node);
}

bool is_differentiable_but_for_results(const Node& loop, const Roles& roles, Visibility& visibility) {
  return loop.opcode() == Opcode::kLoop && carries_gradient_in_blocks(loop) &&
         BlockCheck(roles, visibility, loop.block(0)).is_differentiable(loop);
}

bool may_join(const Value& list, Visibility& visibility) {
  const auto found = appended_list(list);
  return found && std::ranges::none_of(found->appends, [&](const Node* append) {
           return may_require_grad(*append->input(1)) && visibility.is_visible(*append->input(1));
         });
}

std::vector<Value*> lists_filled_by(const Node& node) {
  std::vector<Value*> lists;
  for (const Block* block : node.blocks()) {
    for_each_node(*block, [&](const Node* nested) {
      if (nested->opcode() != Opcode::kAppend) {
        return;
      }
      Value* list = nested->input(0);
      const auto found = appended_list(*list);
      if (found && found->filled_by == &node && std::ranges::find(lists, list) == lists.end()) {
        lists.push_back(list);
      }
    });
  }
  return lists;
}

size_t differentiated_nodes_in(const Node& node, const Roles& roles) {
  size_t count = 0;
  for (const Block* block : node.blocks()) {
    for_each_node(*block, [&](const Node* nested) { count += roles.of(*nested) == Role::kDifferentiated ? 1 : 0; });
  }
  return count;
}

}  // namespace sconce
