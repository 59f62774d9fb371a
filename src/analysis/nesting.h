// Which nodes lie in the blocks of others.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Returns whether the node is `owner`, or lies in a block of it, at any depth. False for null.
inline bool is_inside(const Node* node, const Node& owner) {
  for (; node != nullptr; node = node->owning_block()->owner()) {
    if (node == &owner) {
      return true;
    }
  }
  return false;
}

// Returns whether the node lies in the block, at any depth.
inline bool is_inside(const Node& node, const Block& block) {
  const Block* around = node.owning_block();
  while (around != &block && around->owner() != nullptr) {
    around = around->owner()->owning_block();
  }
  return around == &block;
}

}  // namespace sconce
