#include "lower/step_placement.h"

#include "analysis/effects.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/list_writes.h"
#include "analysis/nesting.h"
#include "kernels/kernel_table.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

const std::vector<uint32_t> kNone;

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

// Returns whether the list of what is asked for is constant, and nothing uses the other results.
bool uses_asked_results(const Node& node, const Value& asked) {
  const c10::IValue* constant = asked.constant();
  if (constant == nullptr || !constant->isBoolList() || constant->toBoolList().size() != node.outputs().size()) {
    return false;
  }
  for (const Value* output : node.outputs()) {
    if (!constant->toBoolList().get(output->offset()) && !output->uses().empty()) {
      return false;
    }
  }
  return true;
}

// Finds the nodes of the unit. Returns why its operator cannot be prepared, as far as these nodes tell.
std::optional<NotPrepared> find_obstacle(PreparedNodes& unit) {
  const Node& node = *unit.op;
  // Autocast is asked first: the table has no kernels of such nodes, and the reason would be kNoKernel.
  if (node.attribute(attr::kAutocast) != nullptr) {
    return NotPrepared::kAutocast;
  }
  if (unit.kernel == nullptr) {
    return node.outputs().size() != 1 ? NotPrepared::kSeveralResults : NotPrepared::kNoKernel;
  }
  if (node.inputs().size() != node.schema()->arguments().size()) {
    return NotPrepared::kArgument;
  }
  const auto is_used = [](const Value* output) { return !output->uses().empty(); };
  if (unit.kernel->computes_first_result && std::ranges::any_of(node.outputs().slice(1), is_used)) {
    return NotPrepared::kSeveralResults;
  }
  if (unit.kernel->asked_results != UINT32_MAX && !uses_asked_results(node, *node.input(unit.kernel->asked_results))) {
    return NotPrepared::kArgument;
  }
  for (const Value* input : node.inputs()) {
    if ((is_list_of_tensors(*input) || is_list_of_ints(*input)) && is_made_for(*input, node)) {
      if (input->node()->inputs().empty()) {
        return NotPrepared::kListArgument;  // the elements are the kernel's operands: an empty list would have none
      }
      // The kernel takes the elements: a run that uses it makes no list (PartsBuilder::add_operands).
      unit.nodes.push_back(input->node());
    } else if (is_list_of_tensors(*input)) {
      return NotPrepared::kListArgument;
    } else if (holds_memory(input->type()) && !input->type()->isSubtypeOf(*c10::OptionalType::ofTensor()) &&
               input->type()->kind() != c10::TypeKind::ListType) {
      return NotPrepared::kArgument;
    }
  }
  unit.nodes.push_back(&node);
  if (node.outputs().size() == 1 && is_list_of_tensors(*node.output())) {
    const Node* unpack = unpacking_node(*node.output());
    // The step stands at the node that unpacks: what stands between would run before the operator.
    if (unpack == nullptr || !follows(*unpack, node)) {
      return NotPrepared::kListResult;
    }
    unit.nodes.push_back(unpack);
  }
  return std::nullopt;
}

}  // namespace

bool returns_tensors(const Node& node) {
  return node.schema() != nullptr && !node.op().is_language() &&
         std::ranges::any_of(node.outputs(), [](const Value* output) {
           return output->type()->kind() == c10::TypeKind::TensorType || is_list_of_tensors(*output);
         });
}

StepPlacement::StepPlacement(const Graph& graph, const AssignedAttributes* assigned, const GroupCompiler* groups,
                             std::optional<size_t> fresh_outputs, bool checks_each_step)
    : positions_(graph) {
  choose_nodes(graph);
  if (groups != nullptr) {
    find_groups(graph);
  }
  // Nothing is placed then, and the alias analysis is spared.
  if (unit_of_.empty() && groups_.empty()) {
    return;
  }
  const Regions regions(graph, /*autograd_runs=*/checks_each_step);
  // The order matters. Attributes are read in place if all their users are still prepared, a product joins a group past such
  // reads, and a slot is in use as long as the nodes that were joined.
  leave_out_views(graph, regions, checks_each_step);
  choose_attributes(graph, assigned);
  if (groups != nullptr && !checks_each_step) {
    join_products(*groups);
  }
  choose_slots(regions);
  if (fresh_outputs) {
    choose_reused(regions, graph.body(), *fresh_outputs);
  }
}

const PreparedNodes* StepPlacement::unit_of(const Node& node) const {
  const auto found = unit_of_.find(&node);
  return found == unit_of_.end() ? nullptr : found->second;
}

const NodeGroup* StepPlacement::group_of_kernel(const Node& node) const {
  const auto found = group_of_.find(&node);
  return found == group_of_.end() ? nullptr : found->second;
}

std::optional<NotPrepared> StepPlacement::why_not_prepared(const Node& node) const {
  const auto found = not_prepared_.find(&node);
  return found == not_prepared_.end() || !returns_tensors(node) ? std::nullopt : std::optional(found->second);
}

uint32_t StepPlacement::slot_of(const Value& value) const {
  const auto found = slots_.find(&computed_value(value));
  return found == slots_.end() ? kNoSlot : found->second;
}

const Value* StepPlacement::home_of(const Value& value) const {
  const auto is_returned = [](const Use& use) { return use.user->kind() == prim::Return; };
  const Value& outside = value_outside(value);
  if (outside.uses().size() != 1 || (&outside != &value && std::ranges::count_if(value.uses(), is_returned) != 1)) {
    return nullptr;
  }
  const Node& copy = *outside.uses()[0].user;
  const bool is_home = copy.attribute(attr::kHome) != nullptr && copy.owning_block() == outside.node()->owning_block();
  return is_home ? copy.input(0) : nullptr;
}

const std::vector<uint32_t>& StepPlacement::released_after(const Node& node) const {
  const auto found = released_.find(&node);
  return found == released_.end() ? kNone : found->second;
}

std::vector<const Node*> StepPlacement::attribute_reads(const Value& value) const {
  std::vector<const Node*> reads;
  for (const Node* node = value.node(); fixed_reads_.contains(node); node = node->input(0)->node()) {
    reads.insert(reads.begin(), node);
  }
  return reads;
}

bool StepPlacement::is_weight(const Value& value) const {
  const Node& node = *value.node();
  switch (node.opcode()) {
    case Opcode::kConstant: return true;
    case Opcode::kGetAttr: {
      const auto reads = attribute_reads(value);
      return !reads.empty() && std::ranges::none_of(reads, [&](const Node* read) { return assigned_reads_.contains(read); });
    }
    case Opcode::kUncheckedCast: return is_weight(*node.input(0));
    case Opcode::kGetItem:
      // As nn.LSTM keeps its weights.
      return lists_stay_ && node.input(0)->node()->opcode() == Opcode::kGetAttr && is_weight(*node.input(0));
    case Opcode::kIf:
      return std::ranges::all_of(node.blocks(),
                                 [&](const Block* branch) { return is_weight(*branch->returns()[value.offset()]); });
    default: return false;
  }
}

void StepPlacement::choose_nodes(const Graph& graph) {
  for_each_node(graph.body(), [&](Node* node) {
    const KernelRow* row = node->schema() == nullptr ? nullptr : find_kernel_row(node->op());
    PreparedNodes unit{row, node, {}};
    if (const auto reason = find_obstacle(unit)) {
      not_prepared_[node] = *reason;
      return;
    }
    units_.push_back(std::move(unit));
    positions_.join(units_.back().nodes);
    for (const Node* each : units_.back().nodes) {
      unit_of_[each] = &units_.back();
    }
  });
}

// Leaves out views whose object must not be a frame's: it may leave the run, or change its form, or an operator asks with
// whom it shares memory.
void StepPlacement::leave_out_views(const Graph& graph, const Regions& regions, bool checks_each_step) {
  const FlatSet<const PreparedNodes*> beside_writes = views_beside_writes(graph, regions);
  for (const PreparedNodes& unit : units_) {
    if (!unit.kernel->is_view) {
      continue;
    }
    const bool escapes = std::ranges::any_of(unit.nodes.back()->outputs(), [&](const Value* result) {
      return !regions.is_plannable(*result) && (regions.changes_form(*result) || may_escape(*result));
    });
    if (checks_each_step || escapes || beside_writes.contains(&unit)) {
      for (const Node* node : unit.nodes) {
        unit_of_.erase(node);
      }
      not_prepared_[unit.op] = checks_each_step ? NotPrepared::kViewWithGradients
                               : escapes        ? NotPrepared::kViewEscapes
                                                : NotPrepared::kViewBesideWrite;
    }
  }
}

// Returns the views that an operator reads or writes beside others that may share their memory. LibTorch then compares
// storages, to reject operands that overlap; the object of a frame has a storage of its own.
FlatSet<const PreparedNodes*> StepPlacement::views_beside_writes(const Graph& graph, const Regions& regions) const {
  FlatSet<const PreparedNodes*> found;
  const auto add = [&](const Value* value) {
    // All views down to the base: an ordinary view of a prepared one would have the storage of the frame's object, too.
    for (const Node* node = value->node();;) {
      const PreparedNodes* unit = unit_of(*node);
      const bool is_view = unit != nullptr && unit->kernel->is_view;
      const bool returns_target = node->schema() != nullptr && node->op().all_effects.writes && !node->inputs().empty();
      if (is_view) {
        found.insert(unit);
      } else if (!returns_target) {
        return;
      }
      node = (is_view ? unit->op : node)->input(0)->node();
    }
  };
  for_each_node(graph.body(), [&](const Node* node) {
    const auto inputs = node->inputs();
    for (size_t i = 0; node->schema() != nullptr && effects_of(*node).writes && i < inputs.size(); ++i) {
      for (size_t k = 0; may_write_operand(*node, i) && k < inputs.size(); ++k) {
        if (inputs[k] != inputs[i] && regions.may_alias(*inputs[i], *inputs[k])) {
          add(inputs[i]);
          add(inputs[k]);
        }
      }
    }
  });
  return found;
}

void StepPlacement::choose_attributes(const Graph& graph, const AssignedAttributes* assigned_elsewhere) {
  const AssignedAttributes assigned(graph);
  lists_stay_ = assigned_elsewhere != nullptr && !assigned_elsewhere->changes_lists();
  std::vector<const Node*> reads;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->opcode() != Opcode::kGetAttr || assigned.contains(*node) ||
        node->input(0)->type()->kind() != c10::TypeKind::ClassType) {
      return;
    }
    const Node& object = *node->input(0)->node();
    if (fixed_reads_.contains(&object) || &object == graph.body().param_node()) {
      fixed_reads_.insert(node);
      if (assigned_elsewhere != nullptr && assigned_elsewhere->names(*node)) {
        assigned_reads_.insert(node);
      }
      reads.push_back(node);
    }
  });
  // The last first: an object is read in place if its attributes are.
  std::ranges::reverse(reads);
  for (const Node* read : reads) {
    if (std::ranges::all_of(read->output()->uses(), [&](const Use& use) {
          return unit_of_.contains(use.user) || read_in_place_.contains(use.user);
        })) {
      read_in_place_.insert(read);
    }
  }
  for (const Node* read : reads) {
    if (read_in_place_.contains(read)) {
      objects_.insert(attribute_reads(*read->output()).front()->input(0));
    }
  }
}

// Lets the nodes of each group run together: the kernel reads all operands while it writes all results.
void StepPlacement::find_groups(const Graph& graph) {
  for_each_node(graph.body(), [&](const Node* node) {
    if (node->opcode() == Opcode::kKernel) {
      groups_.push_back(group_of(*node));
      group_of_[node] = &groups_.back();
      positions_.join(*node, groups_.back().nodes);
    }
  });
}

// Lets a product and the group after it run together: the group writes its results while the product reads its operands.
void StepPlacement::join_products(const GroupCompiler& groups) {
  for (const auto& [kernel, group] : group_of_) {
    if (const Node* product = find_product_before(*kernel); product != nullptr && groups.may_take_rows(*group)) {
      products_[kernel] = product;
      positions_.join(*kernel, unit_of(*product)->nodes);
    }
  }
}

// Between the two, prepared runs do nothing. Nothing but the group uses the result.
const Node* StepPlacement::find_product_before(const Node& kernel) const {
  const Node* node = kernel.previous();
  while (node != nullptr && (node->opcode() == Opcode::kConstant || is_read_in_place(*node))) {
    node = node->previous();
  }
  const PreparedNodes* unit = node == nullptr ? nullptr : unit_of(*node);
  if (unit == nullptr || !unit->kernel->has_rows) {
    return nullptr;
  }
  const auto uses = node->output()->uses();
  const bool is_of_group = !uses.empty() && std::ranges::all_of(uses, [&](const Use& use) {
    return use.user->owning_block() == kernel.block(0) && use.user != kernel.block(0)->return_node();
  });
  return is_of_group ? node : nullptr;
}

const Node* StepPlacement::product_before(const Node& kernel) const {
  const auto found = products_.find(&kernel);
  const bool has_slot = found != products_.end() && slot_of(*found->second->output()) != kNoSlot;
  // GroupStep::run_after finds the group's operand by the slot.
  return has_slot ? found->second : nullptr;
}

void StepPlacement::choose_slots(const Regions& regions) {
  for (const PreparedNodes& unit : units_) {
    if (unit_of(*unit.op) == nullptr) {
      continue;
    }
    for (const Value* result : unit.nodes.back()->outputs()) {
      if (regions.is_plannable(*result)) {
        if (unit.kernel->is_view || home_of(*result) == nullptr) {
          add_slot(unit, *result, regions.last_use(*result, positions_));
        }
      } else if (unit.kernel->is_view) {
        // Its object is the frame's, though its memory may be the caller's: the slot holds the base (TensorSlot::held).
        add_slot(unit, *result, regions.last_use_of_view(*result, positions_));
      }
    }
  }
}

void StepPlacement::choose_reused(const Regions& regions, const Block& body, size_t fresh_outputs) {
  const auto returns = body.returns();
  const auto first_reused = returns.begin() + static_cast<std::ptrdiff_t>(fresh_outputs);
  const auto choose = [&](const Value* made) {
    const Value* result = &value_outside(*made);
    // A result that is one of the first ones under another name must not be reused: only those returned as they are may be.
    const bool may_be_reused = fresh_outputs == 0 ? regions.may_be_kept(*result)
                                                  : std::find(returns.begin(), first_reused, result) == first_reused &&
                                                        std::find(first_reused, returns.end(), result) != returns.end();
    if (may_be_reused && slot_of(*result) == kNoSlot) {
      reused_.insert(made);
    }
  };
  for (const PreparedNodes& unit : units_) {
    std::ranges::for_each(unit.nodes.back()->outputs(), choose);
  }
  for (const NodeGroup& group : groups_) {
    std::ranges::for_each(group.results, choose);
  }
}

void StepPlacement::add_slot(const PreparedNodes& unit, const Value& value, uint32_t last) {
  const auto slot = static_cast<uint32_t>(lifetimes_.size());
  slots_[&value] = slot;
  slot_owners_.push_back({unit.op, unit.kernel->is_view});
  lifetimes_.push_back({positions_.begin(*value.node()), last});
  // No step releases it: the frame does, when the run is over (Frame::drop_values).
  if (last == positions_.count()) {
    return;
  }
  const Node* user = &positions_.at(last);
  released_[user].push_back(slot);
  // A run that takes another branch than that of the last use releases at the end of the `if`.
  while (!is_inside(*value.node(), *user->owning_block())) {
    user = user->owning_block()->owner();
    released_[user].push_back(slot);
  }
}

}  // namespace sconce
