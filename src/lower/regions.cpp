#include "lower/regions.h"

#include "analysis/memory/escapes.h"
#include "analysis/nesting.h"
#include "ir/memory_types.h"

#include <algorithm>

namespace sconce {
namespace {

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

}  // namespace

// ---- Positions ------------------------------------------------------------------------------------------------------

void Positions::number(const Block& block) {
  for (const Node* node : block.nodes()) {
    const uint32_t begin = count();
    nodes_.push_back(node);
    for (const Block* nested : node->blocks()) {
      number(*nested);
    }
    if (!node->blocks().empty()) {
      nodes_.push_back(node);
    }
    extents_[node] = {begin, count() - 1};
  }
}

void Positions::join(const std::vector<const Node*>& nodes) {
  const Extent together = {begin(*nodes.front()), end(*nodes.back())};
  for (const Node* node : nodes) {
    extents_[node] = together;
  }
}

void Positions::join(const Node& kernel, const std::vector<const Node*>& nodes) {
  for (const Node* node : nodes) {
    extents_[node] = extents_.at(&kernel);
  }
}

// ---- Regions --------------------------------------------------------------------------------------------------------

Regions::Regions(const Graph& graph, bool autograd_runs)
    // kAsOperands: else a list of operands would be a container, and none of its elements plannable.
    : aliases_(graph, AliasSets::Lists::kAsOperands), escaping_(find_escaping_values(graph, aliases_, autograd_runs)) {
  const auto add_values = [&](c10::ArrayRef<Value*> values) {
    for (const Value* value : values) {
      const AliasSets::Set set = aliases_.set_of(*value);
      // No question asks for the values of wildcard memory, which always escapes.
      if (set == AliasSets::kNone || set == aliases_.wildcard()) {
        continue;
      }
      regions_[set].values.push_back(value);
      if (is_container(value->type())) {
        if (const AliasSets::Set contents = aliases_.contents_of(set); contents != AliasSets::kNone) {
          regions_[contents].is_contained = true;
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
        // The wildcard has the mark, too: Places::leave_out_views asks whether a view of an argument changes its form.
        if (const AliasSets::Set set = aliases_.set_of(*input); set != AliasSets::kNone) {
          regions_[set].changes_form = true;
        }
      }
    }
  });
}

const Regions::Region& Regions::region_of(const Value& value) const {
  static const Region none;
  const auto found = regions_.find(aliases_.set_of(value));
  return found == regions_.end() ? none : found->second;
}

bool Regions::is_plannable(const Value& value) const {
  if (aliases_.set_of(value) == AliasSets::kNone || escaping_.contains(&value)) {
    return false;
  }
  // A slot is written in each trip. So no value of the region may live on from one trip to the next.
  const Region& region = region_of(value);
  const Node* const loop = loop_around(value);
  return !region.is_contained && !region.changes_form &&
         std::all_of(region.values.begin(), region.values.end(),
                     [&](const Value* member) { return loop == nullptr || is_inside(loop_around(*member), *loop); });
}

bool Regions::changes_form(const Value& value) const { return region_of(value).changes_form; }

bool Regions::may_be_kept(const Value& value) const {
  return escaping_.contains(&value) || (loop_around(value) != nullptr && !is_plannable(value));
}

uint32_t Regions::last_use(const Value& value, const Positions& positions) const {
  return last_use_of(region_of(value).values, value, positions);
}

uint32_t Regions::last_use_of_view(const Value& view, const Positions& positions) const {
  // Follows uses from the view, and not the whole region: others may use the base's memory for longer, also after the run.
  std::vector<const Value*> members = {&view};
  std::unordered_set<const Value*> seen = {&view};
  // A container may hold the view and hand it on.
  const auto add = [&](c10::ArrayRef<Value*> values) {
    for (const Value* value : values) {
      if ((aliases_.set_of(*value) == aliases_.set_of(view) || is_container(value->type())) && seen.insert(value).second) {
        members.push_back(value);
      }
    }
  };
  for (size_t i = 0; i < members.size(); ++i) {
    for (const Use& use : members[i]->uses()) {
      const Node* user = use.user->kind() == prim::Return ? use.user->owning_block()->owner() : use.user;
      if (user == nullptr) {
        return positions.count();
      }
      add(user->outputs());
      for (const Block* block : user->blocks()) {
        add(block->params());
      }
    }
  }
  return last_use_of(std::move(members), view, positions);
}

// Returns the last position that uses a member, where `value` provides their memory.
uint32_t Regions::last_use_of(std::vector<const Value*> members, const Value& value, const Positions& positions) const {
  // A result without users is in use until its node has written it.
  uint32_t last = positions.end(*value.node());
  const Node* const home = loop_around(value);
  while (!members.empty()) {
    const Value* member = members.back();
    members.pop_back();
    for (const Use& use : member->uses()) {
      const Node* user = use.user->kind() == prim::Return ? use.user->owning_block()->owner() : use.user;
      if (user == nullptr) {
        return positions.count();
      }
      if (user->kind() == prim::ListConstruct) {
        members.push_back(user->output());  // an operand list: its readers read the elements
      }
      uint32_t end = positions.end(*user);
      for (const Node* around = user; around != nullptr && around != home; around = around->owning_block()->owner()) {
        if (around->kind() == prim::Loop) {
          end = positions.end(*around);  // the next trip may use it again
        }
      }
      last = std::max(last, end);
    }
  }
  return last;
}

}  // namespace sconce
