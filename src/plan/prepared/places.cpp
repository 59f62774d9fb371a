#include "plan/prepared/places.h"

#include "analysis/alias_sets.h"
#include "analysis/escapes.h"
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

// Returns whether the list is made for this one node, right before it.
bool is_made_for(const Value& list, const Node& node) {
  const Node* previous = node.previous();
  while (previous != nullptr && previous->kind() == prim::Constant) {
    previous = previous->previous();
  }
  return list.node()->kind() == prim::ListConstruct && list.node() == previous && list.uses().size() == 1;
}

}  // namespace

Places::Places(const Graph& graph) {
  number(graph.body());
  choose_nodes(graph);
  if (!kernels_.empty()) {
    choose_slots(graph);
  }
}

const KernelRow* Places::kernel_of(const Node& node) const {
  const auto found = kernels_.find(&node);
  return found == kernels_.end() ? nullptr : found->second;
}

uint32_t Places::slot_of(const Value& value) const {
  const auto found = slots_.find(&value);
  return found == slots_.end() ? kNoSlot : found->second;
}

const std::vector<uint32_t>& Places::released_after(const Node& node) const {
  const auto found = released_.find(&node);
  return found == released_.end() ? kNone : found->second;
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
    const auto can_be_argument = [&](const Value* input) {
      const c10::TypeKind kind = input->type()->kind();
      return !holds_memory(input->type()) || kind == c10::TypeKind::TensorType ||
             (is_list_of_tensors(*input) ? is_made_for(*input, *node) : kind == c10::TypeKind::ListType);
    };
    if (!std::all_of(node->inputs().begin(), node->inputs().end(), can_be_argument)) {
      return;
    }
    kernels_[node] = row;
    for (const Value* input : node->inputs()) {
      if (is_list_of_tensors(*input)) {
        operand_lists_.insert(input);
      }
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
  std::vector<const Node*> not_prepared;
  for_each_node(graph.body(), [&](Node* node) {
    const KernelRow* row = kernel_of(*node);
    if (row == nullptr) {
      return;
    }
    const Value& result = *node->output();
    if (is_plannable(result)) {
      add_slot(result, last_use(regions[aliases.set_of(result)], result));
    } else if (row->is_view) {
      // The view's object must not leave the frame; its memory is the owner's, which the slot holds to the end of the run.
      const bool changes = regions[aliases.set_of(result)].changes_form;
      if (changes || may_escape(result)) {
        not_prepared.push_back(node);
      } else {
        add_slot(result, last_position);
      }
    }
  });
  for (const Node* node : not_prepared) {
    kernels_.erase(node);
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
