#include "autodiff/select/visibility.h"

#include "analysis/effects.h"
#include "ir/constant_operands.h"
#include "ir/memory_types.h"

#include <algorithm>

namespace sconce {
namespace {

// Drawing random numbers exposes nothing.
bool exposes_operands(Effects effects) {
  effects.random = false;
  return effects.any();
}

}  // namespace

bool Visibility::is_visible(const Value& value) {
  const auto [found, is_new] = known_.emplace(&value, false);  // false within a cycle through a loop
  if (is_new) {
    const bool is_visible = std::ranges::any_of(value.uses(), [this](const Use& use) { return exposes(use); });
    known_[&value] = is_visible;
    return is_visible;
  }
  return found->second;
}

bool Visibility::exposes(const Use& use) {
  const Node& user = *use.user;
  switch (user.opcode()) {
    case Opcode::kReturn: {
      const Node* owner = user.owning_block() != nullptr ? user.owning_block()->owner() : nullptr;
      return owner == nullptr || returns_visible(*owner, use.index);
    }
    case Opcode::kLoop: return use.index >= 2 && is_visible(*user.block(0)->params()[use.index - 1]);
    case Opcode::kIf: return false;
    case Opcode::kListConstruct:
    case Opcode::kTupleConstruct:
    case Opcode::kListUnpack:
    case Opcode::kTupleUnpack:
    case Opcode::kUncheckedCast: return any_output_is_visible(user);
    case Opcode::kGetItem: return any_output_is_visible(user);
    case Opcode::kAppend:
      return any_output_is_visible(user) ||
             (use.index == 1 && (user.input(0)->node()->opcode() != Opcode::kListConstruct || is_visible(*user.input(0))));
    default: break;
  }
  if (user.schema() == nullptr || !user.blocks().empty() || exposes_operands(effects_of(user))) {
    return true;
  }
  return std::ranges::any_of(user.outputs(), [this](const Value* output) {
    return holds_memory(output->type()) && !is_tensor(*output) && is_visible(*output);
  });
}

bool Visibility::any_output_is_visible(const Node& node) {
  return std::ranges::any_of(node.outputs(), [this](const Value* output) { return is_visible(*output); });
}

bool Visibility::returns_visible(const Node& owner, size_t index) {
  if (owner.opcode() == Opcode::kIf) {
    return is_visible(*owner.output(index));
  }
  // The first return of a loop's body is its condition.
  return owner.opcode() != Opcode::kLoop ||
         (index > 0 && (is_visible(*owner.output(index - 1)) || is_visible(*owner.block(0)->params()[index])));
}

}  // namespace sconce
