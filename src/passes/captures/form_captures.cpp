#include "passes/captures/form_captures.h"

#include "analysis/cut_out.h"
#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "analysis/nested_uses.h"
#include "analysis/node_devices.h"
#include "analysis/step_traits.h"
#include "ir/captured.h"
#include "ir/differentiable.h"
#include "ir/memory_types.h"
#include "ir/schema_match.h"
#include "passes/captures/complete_devices.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>
#include <vector>

namespace sconce {
namespace {

constexpr size_t kMinLaunches = 2;

using Range = std::vector<Node*>;  // in the order of their block
using Members = std::unordered_set<const Node*>;

// Returns whether a node that is no member, nor nested in one, uses the result of a member.
bool is_used_outside(const Value& value, const Members& members) {
  return std::ranges::any_of(value.uses(), [&](const Use& use) {
    const Node* user = use.user;
    while (user->owning_block() != value.node()->owning_block()) {
      user = user->owning_block()->owner();
    }
    return !members.contains(user);
  });
}

// Returns whether a captured node may have an operand or result of the type: two runs can be told to have the same value.
bool may_cross(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType: return true;
    case c10::TypeKind::OptionalType: return may_cross(*type.expectRef<c10::OptionalType>().getElementType());
    default: return false;
  }
}

// Lists of numbers may enter: the range only reads them, and a run compares them.
bool may_enter(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType) {
    return may_enter(*type.expectRef<c10::OptionalType>().getElementType());
  }
  if (type.kind() != c10::TypeKind::ListType) {
    return may_cross(type);
  }
  const c10::TypeKind element = type.expectRef<c10::ListType>().getElementType()->kind();
  return element == c10::TypeKind::IntType || element == c10::TypeKind::FloatType || element == c10::TypeKind::BoolType;
}

// Returns whether a kernel computes the node. Kernels draw random numbers in captures, too; LibTorch's operators do not.
bool is_in_kernel(const Node& node) {
  const Node* around = node.owning_block()->owner();
  return around != nullptr && around->opcode() == Opcode::kKernel;
}

// Chooses the ranges. Does not change the graph.
class RangeFinder {
 public:
  RangeFinder(const Graph& graph, c10::Device device) : device_(device), aliases_(graph) { visit(graph.body()); }
  const std::vector<Range>& found() const { return found_; }

 private:
  // A range that grows.
  struct Growing {
    Range nodes;
    ValueSet results;
    ValueSet lists;    // that enter it
    ValueSet changed;  // lists that its nodes change
    bool writes = false;
  };

  void visit(const Block& block) {
    Growing range;
    for (Node* node : block.nodes()) {
      if (node->opcode() == Opcode::kConstant) {
        continue;
      }
      if (can_be_captured(*node) && join(*node, range)) {
        continue;
      }
      // A node before the range must not read what the range writes.
      const bool reads_written = range.writes && node->opcode() != Opcode::kGetAttr;
      if (has_effects(*node) || reads_written || uses_any(*node, range.results)) {
        finish(std::exchange(range, {}).nodes);
      }
      visit_nested(*node);
    }
    finish(std::move(range.nodes));
  }

  void visit_nested(const Node& node) {
    if (node.opcode() == Opcode::kKernel) {
      return;  // one kernel computes all nodes of its block
    }
    for (const Block* nested : node.blocks()) {
      visit(*nested);
    }
  }

  // Asks for the node and all nodes nested in it.
  bool can_be_captured(const Node& node) const {
    bool can = true;
    const auto ask = [&](const Node& each) {
      if (each.opcode() == Opcode::kConstant || each.opcode() == Opcode::kRaise) {
        return;  // what is raised ends the capture
      }
      const StepTraits traits = traits_of(each, device_);
      can = can && !traits.not_recordable && (!traits.random || is_in_kernel(each)) && each.opcode() != Opcode::kGetAttr &&
            each.opcode() != Opcode::kSetAttr && each.opcode() != Opcode::kCreateObject && !each.op().differentiates &&
            !introduces_grad(each);
    };
    if (node.opcode() == Opcode::kRaise) {
      return false;
    }
    ask(node);
    for (const Block* block : node.blocks()) {
      for_each_node(*block, [&](const Node* each) { ask(*each); });
    }
    return can;
  }

  // Adds the node to the range, if its operands may enter the range or are made in it.
  bool join(Node& node, Growing& range) const {
    bool may = true;
    ValueSet lists = range.lists;
    for_each_operand(node, [&](const Value* operand) {
      const bool enters = operand->constant() == nullptr && !range.results.contains(operand);
      may = may && (!enters || may_enter(*operand->type()));
      if (enters && !is_tensor(*operand) && holds_memory(operand->type())) {
        lists.insert(operand);
      }
    });
    ValueSet changed = range.changed;
    add_changed_lists(node, changed);
    // A replay changes no list.
    const bool changes_list_from_outside = std::ranges::any_of(lists, [&](const Value* list) {
      return std::ranges::any_of(changed, [&](const Value* each) { return aliases_.may_alias(*list, *each); });
    });
    if (!may || changes_list_from_outside) {
      return false;
    }
    range.nodes.push_back(&node);
    range.results.insert(node.outputs().begin(), node.outputs().end());
    range.lists = std::move(lists);
    range.changed = std::move(changed);
    range.writes = range.writes || writes_memory(node);
    return true;
  }

  static void add_changed_lists(const Node& node, ValueSet& changed) {
    for (size_t i = 0; node.schema() != nullptr && i < node.inputs().size(); ++i) {
      if (node.input(i)->type()->kind() == c10::TypeKind::ListType && may_write_operand(node, i)) {
        changed.insert(node.input(i));
      }
    }
    for (const Block* block : node.blocks()) {
      for_each_node(*block, [&](const Node* each) { add_changed_lists(*each, changed); });
    }
  }

  static bool writes_memory(const Node& node) {
    bool writes = effects_of(node).writes;
    for (const Block* block : node.blocks()) {
      for_each_node(*block, [&](const Node* each) { writes = writes || effects_of(*each).writes; });
    }
    return writes;
  }

  // A value that may not cross, and is used outside the range, ends it. What follows it forms a range of its own.
  void finish(Range range) {
    const Members members(range.begin(), range.end());
    const auto leaks = std::ranges::find_if(range, [&](const Node* node) {
      return std::ranges::any_of(node->outputs(), [&](const Value* output) {
        return !may_cross(*output->type()) && is_used_outside(*output, members);
      });
    });
    if (leaks != range.end()) {
      finish(Range(range.begin(), leaks));
      visit_nested(**leaks);
      finish_again(Range(leaks + 1, range.end()));
      return;
    }
    size_t launches = 0;
    for (const Node* node : range) {
      launches += count_launches(*node);
    }
    if (launches >= kMinLaunches) {
      found_.push_back(std::move(range));
    }
  }

  // The same for nodes that follow those that have left the range: what these make comes from outside now.
  void finish_again(const Range& nodes) {
    Growing range;
    for (Node* node : nodes) {
      if (!join(*node, range)) {
        finish(std::exchange(range, {}).nodes);
        visit_nested(*node);
      }
    }
    finish(std::move(range.nodes));
  }

  // Returns how many nodes give work to the device, each trip of a loop once.
  static size_t count_launches(const Node& node) {
    if (node.opcode() == Opcode::kKernel) {
      return 1;
    }
    size_t launches = 0;
    for (const Block* block : node.blocks()) {
      for (const Node* each : block->nodes()) {
        launches += count_launches(*each);
      }
    }
    const bool computes =
        !node.op().is_language() && !node.op().moves_operands && (produces_new_tensor(node) || effects_of(node).writes);
    return launches + (computes ? 1 : 0);
  }

  const c10::Device device_;
  const AliasSets aliases_;
  std::vector<Range> found_;
};

std::vector<Value*> results_of(const Range& range) {
  const Members members(range.begin(), range.end());
  std::vector<Value*> results;
  for (const Node* node : range) {
    std::copy_if(node->outputs().begin(), node->outputs().end(), std::back_inserter(results),
                 [&](const Value* output) { return is_used_outside(*output, members); });
  }
  return results;
}

bool draws(const Graph& subgraph) {
  bool draws = false;
  for_each_node(subgraph.body(), [&](const Node* node) { draws = draws || effects_of(*node).random; });
  return draws;
}

// Returns whether the subgraph writes memory from outside, or returns tensors that share memory with others.
bool has_effects_outside(const Graph& subgraph) {
  const AliasSets aliases(subgraph);
  if (std::ranges::any_of(subgraph.inputs(), [&](const Value* input) { return aliases.may_be_written(*input); })) {
    return true;
  }
  const auto outputs = subgraph.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    bool shares = aliases.set_of(*outputs[i]) != AliasSets::kNone && aliases.is_wildcard(*outputs[i]);
    for (size_t k = 0; k < i; ++k) {
      shares = shares || aliases.may_alias(*outputs[i], *outputs[k]);
    }
    if (shares) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool form_captures(Graph& graph) {
  const c10::Device device = main_device_of(graph);
  if (device.is_cpu()) {
    return false;
  }
  complete_devices(graph, device);
  const RangeFinder ranges(graph, device);
  for (const Range& range : ranges.found()) {
    const std::vector<Value*> results = results_of(range);
    const CutOut cut = cut_out(range, results);
    Node& captured = replace_by_subgraph(range, results, cut, kCapturedKind);
    if (has_effects_outside(*cut.subgraph)) {
      captured.set_attribute(attr::kHasEffects, int64_t{1});
    }
    if (draws(*cut.subgraph)) {
      captured.set_attribute(attr::kDraws, int64_t{1});
    }
    resolve(captured);
  }
  return !ranges.found().empty();
}

}  // namespace sconce
