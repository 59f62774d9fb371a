#include "plan/prepared/places.h"

#include "analysis/alias_sets.h"
#include "analysis/assigned_attributes.h"
#include "analysis/escapes.h"
#include "analysis/list_writes.h"
#include "analysis/nesting.h"

#include <algorithm>

namespace sconce {
namespace {

const std::vector<uint32_t> kNone;

// Returns the innermost loop around the place where the value is made. A loop's params live longer than one trip.
const Node* loop_around(const Value& value) {
  const Node* node = value.node()->kind() == prim::Param ? value.node()->owning_block()->owner() : value.node();
  if (node == nullptr) {
    return nullptr;
  }
  for (node = node->owning_block()->owner(); node != nullptr && node->kind() != prim::Loop;) {
    node = node->owning_block()->owner();
  }
  return node;
}

bool is_list_of_tensors(const Value& value) {
  return value.type()->kind() == c10::TypeKind::ListType &&
         value.type()->containedType(0)->kind() == c10::TypeKind::TensorType;
}

bool is_list_of_ints(const Value& value) {
  return value.type()->kind() == c10::TypeKind::ListType && value.type()->containedType(0)->kind() == c10::TypeKind::IntType;
}

// Returns whether the list is made for this one node, and only constants and other such lists are made in between.
bool is_made_for(const Value& list, const Node& node) {
  const auto is_for_node = [&](const Node& other) {
    return other.opcode() == Opcode::kListConstruct && other.output()->uses().size() == 1 &&
           other.output()->uses()[0].user == &node;
  };
  const Node* previous = node.previous();
  while (previous != nullptr && previous != list.node() &&
         (previous->opcode() == Opcode::kConstant || is_for_node(*previous))) {
    previous = previous->previous();
  }
  return previous == list.node() && is_for_node(*previous);
}

// Returns whether the second node follows the first, and only constants stand in between.
bool follows(const Node& second, const Node& first) {
  const Node* previous = second.previous();
  while (previous != nullptr && previous->opcode() == Opcode::kConstant) {
    previous = previous->previous();
  }
  return previous == &first;
}

}  // namespace

Places::Places(const Graph& graph) {
  number(graph.body());
  choose_nodes(graph);
  if (!unit_of_.empty()) {
    choose_slots(graph);
    choose_attributes(graph);
  }
}

const PreparedUnit* Places::unit_of(const Node& node) const {
  const auto found = unit_of_.find(&node);
  return found == unit_of_.end() ? nullptr : found->second;
}

uint32_t Places::slot_of(const Value& value) const {
  const auto found = slots_.find(&value);
  return found == slots_.end() ? kNoSlot : found->second;
}

const std::vector<uint32_t>& Places::released_after(const Node& node) const {
  const auto found = released_.find(&node);
  return found == released_.end() ? kNone : found->second;
}

std::vector<const Node*> Places::attribute_reads(const Value& value) const {
  std::vector<const Node*> reads;
  for (const Node* node = value.node(); fixed_reads_.contains(node); node = node->input(0)->node()) {
    reads.insert(reads.begin(), node);
  }
  return reads;
}

void Places::number(const Block& block) {
  for (const Node* node : block.nodes()) {
    const auto begin = static_cast<uint32_t>(node_at_.size());
    node_at_.push_back(node);
    for (const Block* nested : node->blocks()) {
      number(*nested);
    }
    if (!node->blocks().empty()) {
      node_at_.push_back(node);
    }
    extents_[node] = {begin, static_cast<uint32_t>(node_at_.size() - 1)};
  }
}

void Places::choose_nodes(const Graph& graph) {
  for_each_node(graph.body(), [&](Node* node) {
    const KernelRow* row = node->schema() == nullptr ? nullptr : find_kernel_row(node->op());
    if (row == nullptr || node->outputs().size() != 1 || node->inputs().size() != node->schema()->arguments().size()) {
      return;
    }
    PreparedUnit unit{row, node, {}};
    for (const Value* input : node->inputs()) {
      if ((is_list_of_tensors(*input) || is_list_of_ints(*input)) && is_made_for(*input, *node)) {
        unit.nodes.push_back(input->node());
      } else if (holds_memory(input->type()) && input->type()->kind() != c10::TypeKind::TensorType &&
                 (input->type()->kind() != c10::TypeKind::ListType || is_list_of_tensors(*input))) {
        return;
      }
    }
    unit.nodes.push_back(node);
    if (is_list_of_tensors(*node->output())) {
      const Node* unpack = unpacking_node(*node->output());
      if (unpack == nullptr || !follows(*unpack, *node)) {
        return;
      }
      unit.nodes.push_back(unpack);
    }
    // The unit runs where its last node stands.
    const Extent place = extents_.at(unit.nodes.back());
    units_.push_back(std::move(unit));
    for (const Node* each : units_.back().nodes) {
      unit_of_[each] = &units_.back();
      extents_[each] = place;
    }
  });
}

void Places::choose_slots(const Graph& graph) {
  const AliasSets aliases(graph, AliasSets::Lists::kAsOperands);
  const auto escaping = find_escaping_values(graph, aliases, /*autograd_runs=*/false);
  // The values of one alias set, and two properties of their memory.
  struct Region {
    std::vector<const Value*> values;
    bool is_contained = false;  // in a list, a tuple or an object
    bool changes_form = false;  // an operator changes sizes or strides of a tensor in place
  };
  std::unordered_map<AliasSets::Set, Region> regions;
  const auto add_values = [&](c10::ArrayRef<Value*> values) {
    for (const Value* value : values) {
      const AliasSets::Set set = aliases.set_of(*value);
      if (set == AliasSets::kNone || set == aliases.wildcard()) {
        continue;
      }
      regions[set].values.push_back(value);
      if (is_container(value->type())) {
        if (const AliasSets::Set contents = aliases.contents_of(set); contents != AliasSets::kNone) {
          regions[contents].is_contained = true;
        }
      }
    }
  };
  for_each_node(graph.body(), [&](Node* node) {
    add_values(node->outputs());
    for (const Block* block : node->blocks()) {
      add_values(block->params());
    }
    if (node->op().may_change_sizes) {
      for (const Value* input : node->inputs()) {
        if (const AliasSets::Set set = aliases.set_of(*input); set != AliasSets::kNone) {
          regions[set].changes_form = true;
        }
      }
    }
  });
  const auto last_position = static_cast<uint32_t>(node_at_.size());
  // Returns the last position at which memory of the region is used, if `value` provides it.
  const auto last_use = [&](const Region& region, const Value& value) {
    uint32_t last = extents_.at(value.node()).end;
    const Node* const home = loop_around(value);
    std::vector<const Value*> members = region.values;
    while (!members.empty()) {
      const Value* member = members.back();
      members.pop_back();
      for (const Use& use : member->uses()) {
        const Node* user = use.user->kind() == prim::Return ? use.user->owning_block()->owner() : use.user;
        if (user == nullptr) {
          return last_position;
        }
        if (user->kind() == prim::ListConstruct) {
          members.push_back(user->output());  // an operand list: its readers read the elements
        }
        uint32_t end = extents_.at(user).end;
        for (const Node* around = user; around != nullptr && around != home; around = around->owning_block()->owner()) {
          if (around->kind() == prim::Loop) {
            end = extents_.at(around).end;  // the next trip may use it again
          }
        }
        last = std::max(last, end);
      }
    }
    return last;
  };
  const auto is_plannable = [&](const Value& value) {
    const AliasSets::Set set = aliases.set_of(value);
    if (set == AliasSets::kNone || escaping.contains(&value)) {
      return false;
    }
    const Region& region = regions[set];
    const Node* const loop = loop_around(value);
    return !region.is_contained && !region.changes_form &&
           std::all_of(region.values.begin(), region.values.end(),
                       [&](const Value* member) { return loop == nullptr || is_inside(loop_around(*member), *loop); });
  };
  const auto needs_the_operator = [&](const PreparedUnit& unit) {
    const auto results = unit.nodes.back()->outputs();
    return unit.kernel->is_view && std::any_of(results.begin(), results.end(), [&](const Value* result) {
             // The view's object must not leave the frame.
             return !is_plannable(*result) && (regions[aliases.set_of(*result)].changes_form || may_escape(*result));
           });
  };
  for (const PreparedUnit& unit : units_) {
    if (needs_the_operator(unit)) {
      for (const Node* node : unit.nodes) {
        unit_of_.erase(node);
      }
      continue;
    }
    for (const Value* result : unit.nodes.back()->outputs()) {
      if (is_plannable(*result)) {
        add_slot(*result, last_use(regions[aliases.set_of(*result)], *result));
      } else if (unit.kernel->is_view) {
        add_slot(*result, last_position);  // its memory is the owner's, which the slot holds to the end of the run
      }
    }
  }
}

void Places::choose_attributes(const Graph& graph) {
  const AssignedAttributes assigned(graph);
  std::vector<const Node*> reads;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->opcode() != Opcode::kGetAttr || assigned.contains(*node) ||
        node->input(0)->type()->kind() != c10::TypeKind::ClassType) {
      return;
    }
    const Node& object = *node->input(0)->node();
    if (fixed_reads_.contains(&object) || &object == graph.body().param_node()) {
      fixed_reads_.insert(node);
      reads.push_back(node);
    }
  });
  // The last first: an object is read in place if its attributes are.
  std::reverse(reads.begin(), reads.end());
  for (const Node* read : reads) {
    const auto uses = read->output()->uses();
    if (std::all_of(uses.begin(), uses.end(),
                    [&](const Use& use) { return unit_of_.contains(use.user) || read_in_place_.contains(use.user); })) {
      read_in_place_.insert(read);
    }
  }
  for (const Node* read : reads) {
    if (read_in_place_.contains(read)) {
      objects_.insert(attribute_reads(*read->output()).front()->input(0));
    }
  }
}

void Places::add_slot(const Value& value, uint32_t last) {
  const auto slot = static_cast<uint32_t>(lifetimes_.size());
  slots_[&value] = slot;
  lifetimes_.push_back({extents_.at(value.node()).begin, last});
  if (last < node_at_.size()) {
    released_[node_at_[last]].push_back(slot);
  }
}

}  // namespace sconce
