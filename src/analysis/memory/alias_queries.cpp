#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"

#include <algorithm>
#include <unordered_set>

namespace sconce {

AliasSets::Set AliasSets::set_of(const Value& value) const {
  if (value.id() >= sets_.size() || sets_[value.id()] == kNone) {
    return holds_memory(value.type()) ? wildcard() : kNone;  // made after the analysis: nothing is known about it
  }
  return find(sets_[value.id()]);
}

AliasSets::Set AliasSets::contents_of(Set set) const {
  const Set contents = contents_[find(set)];
  return contents == kNone ? kNone : find(contents);
}

bool AliasSets::may_alias(const Value& a, const Value& b) const {
  const Set set = set_of(a);
  return set != kNone && set == set_of(b) && may_be_of_both_types(a.type(), b.type());
}

bool AliasSets::is_wildcard(const Value& value) const { return set_of(value) == wildcard(); }

bool AliasSets::may_be_written(const Value& value) const {
  const Set set = set_of(value);
  return set != kNone && (written_[set] & memory_kinds_of(value.type())) != 0;
}

bool AliasSets::may_be_written_within(const Value& value) const {
  const MemoryKinds kinds = memory_kinds_within(value.type());
  std::unordered_set<Set> seen;
  for (Set set = set_of(value); set != kNone && seen.insert(set).second; set = contents_of(set)) {
    if ((written_[set] & kinds) != 0) {
      return true;
    }
  }
  return false;
}

namespace {

// Returns whether the type contains a type variable: `t[]`, `Dict(str, t)`.
bool is_container_of_anything(const c10::Type& type) {
  return (type.kind() == c10::TypeKind::ListType || type.kind() == c10::TypeKind::DictType) &&
         std::ranges::any_of(type.containedTypes(),
                             [](const c10::TypePtr& part) { return part->kind() == c10::TypeKind::VarType; });
}

}  // namespace

std::vector<AliasSets::Memory> AliasSets::writes_of(const Node& node) const {
  std::vector<Memory> writes;
  const auto add = [&](Set set, MemoryKinds kinds) {
    if (set == kNone || kinds == kNoMemory) {
      return;
    }
    const auto same = std::ranges::find_if(writes, [&](const Memory& write) { return write.set == set; });
    if (same == writes.end()) {
      writes.push_back({set, kinds});
    } else {
      same->kinds |= kinds;
    }
  };
  const Effects effects = effects_of(node);
  if (effects.unknown) {
    add(wildcard(), kAnyMemory);
    for (const Value* input : node.inputs()) {
      add(set_of(*input), kAnyMemory);
    }
    return writes;
  }
  if (node.op().is_language()) {
    if (effects.writes) {
      add(set_of(*node.input(0)), kObjectMemory);  // an attribute is stored in its object
    }
    return writes;
  }
  for (size_t i = 0; effects.writes && i < std::min(node.schema()->arguments().size(), node.inputs().size()); ++i) {
    if (may_write_operand(node, i)) {
      // `foreach_add_(Tensor(a!)[] self)` writes the elements, too; `append(t[](a!) self)` does not know their type.
      const Value& operand = *node.input(i);
      const bool is_all = !is_container_of_anything(*node.schema()->arguments()[i].type());
      const MemoryKinds kinds = is_all ? memory_kinds_within(operand.type()) : memory_kinds_of(operand.type());
      add(set_of(operand), kinds);
      if (is_all && set_of(operand) != kNone) {
        add(contents_of(set_of(operand)), kinds);
      }
    }
  }
  return writes;
}

bool AliasSets::may_write(const Node& node, const Value& value) const {
  const Set set = set_of(value);
  const MemoryKinds kinds = memory_kinds_of(value.type());
  const auto writes = writes_of(node);
  return std::ranges::any_of(writes, [&](const Memory& write) { return write.set == set && (write.kinds & kinds) != 0; });
}

}  // namespace sconce
