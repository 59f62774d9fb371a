#include "passes/eliminate_dead_nodes.h"

#include "ir/effects.h"

#include <algorithm>

namespace sconce {
namespace {

// Backwards, so that a chain of dead nodes goes in one walk.
bool eliminate_in(const Block& block) {
  bool changed = false;
  Node* previous = nullptr;
  for (Node* node = block.last(); node != nullptr; node = previous) {
    previous = node->previous();
    const bool used =
        std::any_of(node->outputs().begin(), node->outputs().end(), [](const Value* v) { return v->has_uses(); });
    if (!used && !has_effects(*node)) {
      node->erase();
      changed = true;
      continue;
    }
    for (const Block* nested : node->blocks()) {
      changed |= eliminate_in(*nested);
    }
  }
  return changed;
}

}  // namespace

bool eliminate_dead_nodes(Graph& graph) { return eliminate_in(graph.body()); }

}  // namespace sconce
