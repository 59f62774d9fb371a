#include "passes/loops/hoist_loop_invariants.h"

#include "analysis/effects.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/memory_writes.h"
#include "analysis/memory/object_identity.h"
#include "analysis/nesting.h"
#include "ir/constant_operands.h"

#include <algorithm>

namespace sconce {
namespace {

bool comes_from_outside(const Value& value, const Node& loop) {
  const Node* definition = value.node();
  // Params belong to a hidden node of their block.
  return !is_inside(definition->kind() == prim::Param ? definition->owning_block()->owner() : definition, loop);
}

bool runs_at_least_once(const Node& loop) {
  const auto* trips = loop.input(0)->constant();
  return trips && trips->isInt() && trips->toInt() > 0 && constant_bool(*loop.input(1)) == true;
}

class Hoisting {
 public:
  explicit Hoisting(Graph& graph) : aliases_(graph), writes_(graph, aliases_), identity_(graph) {
    for_each_node(graph.body(), [&](Node* node) { differentiates_ = differentiates_ || node->op().differentiates; });
  }

  // Inner loops first: nodes hoisted out of them may be invariant in the outer loop, too.
  bool run(const Block& block) {
    bool changed = false;
    for (Node* node : block.nodes()) {
      for (const Block* nested : node->blocks()) {
        changed |= run(*nested);
      }
      if (node->kind() == prim::Loop) {
        bool certain = runs_at_least_once(*node);
        changed |= hoist_from(*node->block(0), *node, certain);
      }
    }
    return changed;
  }

 private:
  // `certain`: execution is sure to reach the next node once it reaches the loop.
  bool hoist_from(const Block& block, Node& loop, bool& certain) {
    bool changed = false;
    for (Node* node : block.nodes()) {
      if (is_invariant(*node, loop) && (certain || !may_raise(*node))) {
        node->detach();
        node->insert_before(&loop);
        changed = true;
        continue;
      }
      certain = certain && !has_effects(*node) && !may_raise(*node);
      for (const Block* nested : node->blocks()) {
        bool reached = false;  // a branch, or a loop that may run no iteration
        changed |= hoist_from(*nested, loop, reached);
      }
    }
    return changed;
  }

  bool is_invariant(const Node& node, const Node& loop) {
    if (produces_tuple_or_string(node) && identity_.is_observed()) {
      return false;
    }
    if (narrows_gradients(node) || effects_of(node).any() || !node.blocks().empty() || node.outputs().empty() ||
        node.kind() == prim::Constant || node.kind() == prim::CreateObject ||
        (node.schema() != nullptr && writes_.state_may_change_within(loop))) {
      return false;
    }
    const bool reads_the_same = std::all_of(node.inputs().begin(), node.inputs().end(), [&](const Value* input) {
      return comes_from_outside(*input, loop) &&
             !(node.opcode() == Opcode::kGetAttr ? writes_.may_be_written_itself_within(*input, loop)
                                                 : writes_.may_be_written_within(*input, loop));
    });
    return reads_the_same && (produces_existing_objects(node) ||
                              std::all_of(node.outputs().begin(), node.outputs().end(), [&](const Value* output) {
                                return !holds_memory(output->type()) ||
                                       (!differentiates_ && !aliases_.may_be_written(*output) && !may_escape(*output));
                              }));
  }

  AliasSets aliases_;
  MemoryWrites writes_;
  LazyIdentity identity_;
  bool differentiates_ = false;
};

}  // namespace

bool hoist_loop_invariants(Graph& graph) {
  bool has_loops = false;
  for_each_node(graph.body(), [&](Node* node) { has_loops = has_loops || node->kind() == prim::Loop; });
  return has_loops && Hoisting(graph).run(graph.body());
}

}  // namespace sconce
