#include "passes/simplify/eliminate_common_nodes.h"

#include "analysis/effects.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/memory_writes.h"
#include "analysis/memory/object_identity.h"
#include "base/flat_map.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <variant>

namespace sconce {
namespace {

bool computes_the_same(const Node& a, const Node& b) {
  return a.kind() == b.kind() && a.schema() == b.schema() && a.inputs() == b.inputs() &&
         std::equal(a.outputs().begin(), a.outputs().end(), b.outputs().begin(), b.outputs().end(),
                    [](const Value* x, const Value* y) { return *x->type() == *y->type(); }) &&
         equal_attributes(a.attributes(), b.attributes());
}

// A FlatMap grows until few of its keys have one hash: the attributes that a large module is read by must have several.
struct Hash {
  size_t operator()(const Node* node) const {
    size_t hash = static_cast<c10::unique_t>(node->kind());
    for (const Value* input : node->inputs()) {
      hash = c10::hash_combine(hash, input->id());
    }
    for (const Attribute& attribute : node->attributes()) {
      if (const auto* name = std::get_if<std::string>(&attribute.value)) {
        hash = c10::hash_combine(hash, std::hash<std::string>()(*name));
      }
    }
    return hash;
  }
};
struct Same {
  bool operator()(const Node* a, const Node* b) const { return computes_the_same(*a, *b); }
};

class CommonNodes {
 public:
  explicit CommonNodes(Graph& graph) : graph_(graph), identity_(graph) {
    for_each_node(graph.body(), [&](Node* node) { differentiates_ = differentiates_ || node->op().differentiates; });
  }

  bool run(const Block& block) {
    std::vector<std::pair<Node*, Node*>> before;  // the entries of `seen_` to restore after the block
    bool changed = false;
    for (Node* node : block.nodes()) {
      if (is_candidate(*node)) {
        const auto [earlier, is_new] = seen_.emplace(node, node);
        if (is_new) {
          before.emplace_back(node, nullptr);
        } else if (may_merge(*earlier->second, *node)) {
          merge(*earlier->second, *node);
          changed = true;
          continue;
        } else {
          before.emplace_back(earlier->first, earlier->second);
          earlier->second = node;  // the nearer node has fewer writes in between
        }
      }
      for (const Block* nested : node->blocks()) {
        changed |= CommonNodes::run(*nested);
      }
    }
    for (; !before.empty(); before.pop_back()) {
      const auto [key, earlier] = before.back();
      if (earlier == nullptr) {
        seen_.erase(key);
      } else {
        seen_[key] = earlier;
      }
    }
    return changed;
  }

 private:
  static bool is_candidate(const Node& node) {
    return !narrows_gradients(node) && !effects_of(node).any() && node.blocks().empty() && !node.outputs().empty() &&
           node.kind() != prim::Constant && node.kind() != prim::CreateObject && node.kind() != prim::Uninitialized;
  }

  bool may_merge(const Node& earlier, const Node& later) {
    if (!memory_) {
      memory_.emplace(graph_);  // most functions have no equal nodes and never get here
    }
    if (differentiates_ && !produces_existing_objects(later) &&
        std::ranges::any_of(later.outputs(), [](const Value* output) { return holds_memory(output->type()); })) {
      return false;
    }
    if (produces_tuple_or_string(later) && identity_.is_observed()) {
      return false;
    }
    if (later.schema() != nullptr && memory_->writes.state_may_change_between(earlier, later)) {
      return false;
    }
    for (const Value* input : later.inputs()) {
      if (!is_fixed_list(*input) && memory_->writes.may_be_written_between(*input, earlier, later)) {
        return false;
      }
    }
    if (produces_existing_objects(later)) {
      return true;
    }
    for (size_t i = 0; i < later.outputs().size(); ++i) {
      const Value& a = *earlier.output(i);
      const Value& b = *later.output(i);
      if (memory_->aliases.may_be_written(a) || memory_->aliases.may_be_written(b) || are_told_apart(a, b)) {
        return false;
      }
    }
    return true;
  }

  // The caller sees two objects as one, or what one value's readers give to the other's gradient: a hook of a result is
  // called with the gradient of all its uses.
  static bool are_told_apart(const Value& a, const Value& b) {
    const TensorFacts* facts = a.facts();
    const bool has_gradient = is_tensor(a) && (facts == nullptr || facts->requires_grad != false);
    return (has_gradient && (is_returned(a) || is_returned(b))) || (may_escape(a) && may_escape(b));
  }

  // Returns whether the caller gets the value, by itself or in a container.
  static bool is_returned(const Value& value) {
    return std::ranges::any_of(value.uses(), [](const Use& use) {
      const Node& user = *use.user;
      const bool holds = user.op().makes_container || user.opcode() == Opcode::kTupleConstruct;
      return (user.opcode() == Opcode::kReturn && user.owning_block()->owner() == nullptr) ||
             (holds && user.outputs().size() == 1 && is_returned(*user.output()));
    });
  }

  // A constant list of numbers belongs to this graph alone, so every write to it uses its name.
  static bool is_fixed_list(const Value& value) {
    const auto* constant = value.constant();
    return constant && constant->isList() && !holds_memory(value.type()->containedType(0)) && is_read_only_and_local(value);
  }

  static void merge(Node& earlier, Node& later) {
    for (size_t i = 0; i < later.outputs().size(); ++i) {
      later.output(i)->replace_all_uses_with(earlier.output(i));
    }
    later.erase();
  }

  // As of the first question. Merging only erases nodes.
  struct Memory {
    explicit Memory(const Graph& graph) : aliases(graph), writes(graph, aliases) {}
    AliasSets aliases;
    MemoryWrites writes;
  };

  const Graph& graph_;
  std::optional<Memory> memory_;
  LazyIdentity identity_;
  bool differentiates_ = false;
  FlatMap<Node*, Node*, Hash, Same> seen_;  // by what they compute, in this block and enclosing ones
};

}  // namespace

bool eliminate_common_nodes(Graph& graph) { return CommonNodes(graph).run(graph.body()); }

}  // namespace sconce
