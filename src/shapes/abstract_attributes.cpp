// Attributes that the graph assigns, for AbstractEvaluator.
//
// Objects are told apart by the attributes that lead to them from an argument, as long as none of those is assigned itself.
// Each assigned attribute of each such object is a list of one element on the heap: what it holds, which branches and loops
// then join as they do lists. Two objects of one class found in two ways may be one.
#include "ir/memory_types.h"
#include "shapes/abstract_evaluator.h"

#include <ATen/core/jit_type.h>

#include <utility>

namespace sconce {
namespace {

// Empty when the object is not found in such a way.
std::string path_to(const Value& object, const AssignedAttributes& assigned) {
  const Node& node = *object.node();
  if (node.opcode() == Opcode::kParam && node.owning_block()->owner() == nullptr) {
    return "%" + std::to_string(object.id());
  }
  if (node.opcode() != Opcode::kGetAttr || assigned.contains(node)) {
    return "";
  }
  const std::string holder = path_to(*node.input(0), assigned);
  return holder.empty() ? "" : holder + "." + node.attribute_as<std::string>(attr::kName);
}

}  // namespace

void AbstractEvaluator::find_assigned_attributes() {
  for_each_node(graph_.body(), [&](Node* node) {
    if (node->opcode() != Opcode::kGetAttr || !assigned_.contains(*node)) {
      return;
    }
    const std::string path = path_to(*node->input(0), assigned_);
    const std::string name = node->attribute_as<std::string>(attr::kName);
    if (!path.empty() && attributes_.count({path, name}) == 0) {
      AbstractValue held = rules_.initial_attribute_values ? rules_.initial_attribute_values(*node) : AbstractValue();
      attributes_.emplace(std::pair(path, name), heap_.make({.elements = AbstractValues{std::move(held)}}));
    }
  });
}

AbstractValue AbstractEvaluator::attribute_read_by(const Node& get) const {
  const auto found = attributes_.find({path_to(*get.input(0), assigned_), get.attribute_as<std::string>(attr::kName)});
  return found == attributes_.end() ? AbstractValue() : held_in(found->second);
}

// Of an attribute that a loop keeps changing nothing is known.
AbstractValue AbstractEvaluator::held_in(ListId attribute) const {
  const AbstractList& list = heap_.at(attribute);
  return list.elements ? list.elements->front() : AbstractValue();
}

void AbstractEvaluator::assign_attribute(const Node& set) {
  heap_.escape(at(*set.input(1)));
  // Lists, also constant ones, may be changed by whoever reads them from there.
  const bool can_be_changed = (memory_kinds_within(set.input(1)->type()) & ~kTensorMemory) != 0;
  const AbstractValue value = can_be_changed ? AbstractValue() : at(*set.input(1));
  const std::string path = path_to(*set.input(0), assigned_);
  const std::string name = set.attribute_as<std::string>(attr::kName);
  for (const auto& [attribute, held] : attributes_) {
    if (attribute.second == name) {
      AbstractValue now_held = attribute.first == path ? value : heap_.join(held_in(held), value);
      heap_.set(held, {.elements = AbstractValues{std::move(now_held)}});
    }
  }
}

}  // namespace sconce
