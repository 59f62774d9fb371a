#include "analysis/memory/memory_writes.h"

#include "analysis/effects.h"

#include <algorithm>
#include <unordered_set>

namespace sconce {

MemoryWrites::MemoryWrites(const Graph& graph, const AliasSets& aliases) : aliases_(aliases) { visit(graph.body()); }

void MemoryWrites::visit(const Block& block) {
  for (const Node* node : block.nodes()) {
    const Position position = next_++;
    for (const AliasSets::Memory& write : aliases_.writes_of(*node)) {
      writes_[write.set][write.kinds].push_back(position);
    }
    const Effects effects = effects_of(*node);
    if (effects.state || effects.unknown) {
      state_changes_.push_back(position);
    }
    for (const Block* nested : node->blocks()) {
      visit(*nested);
    }
    spans_[node] = {position, next_};
  }
}

MemoryWrites::Span MemoryWrites::between(const Node& first, const Node& second) const {
  Span span{spans_.at(&first).end, spans_.at(&second).begin};
  // Loops that enclose `second` and begin after `first` do not enclose `first`.
  for (const Node* around = second.owning_block()->owner(); around != nullptr && spans_.at(around).begin >= span.begin;
       around = around->owning_block()->owner()) {
    if (around->kind() == prim::Loop) {
      span.end = spans_.at(around).end;
    }
  }
  return span;
}

bool MemoryWrites::is_after(const Node& node, const Node& other) const {
  const Node* stands = &node;
  while (stands->kind() == prim::Return) {
    if (stands->owning_block() == other.owning_block() || stands->owning_block()->owner() == nullptr) {
      return true;
    }
    stands = stands->owning_block()->owner();
  }
  return covers(*stands) && spans_.at(stands).begin > spans_.at(&other).begin;
}

MemoryWrites::Span MemoryWrites::within(const Node& node) const {
  const Span span = spans_.at(&node);
  return {span.begin + 1, span.end};
}

bool MemoryWrites::any_in(const Positions& positions, Span span) {
  const auto next = std::lower_bound(positions.begin(), positions.end(), span.begin);
  return next != positions.end() && *next < span.end;
}

bool MemoryWrites::is_written(AliasSets::Set set, MemoryKinds kinds, Span span) const {
  const auto found = writes_.find(set);
  return found != writes_.end() && std::any_of(found->second.begin(), found->second.end(), [&](const auto& of_kinds) {
           return (of_kinds.first & kinds) != 0 && any_in(of_kinds.second, span);
         });
}

bool MemoryWrites::may_be_written(const Value& value, Span span) const {
  const MemoryKinds kinds = memory_kinds_within(value.type());
  std::unordered_set<AliasSets::Set> seen;
  for (AliasSets::Set set = aliases_.set_of(value); set != AliasSets::kNone && seen.insert(set).second;
       set = aliases_.contents_of(set)) {
    if (is_written(set, kinds, span)) {
      return true;
    }
  }
  return false;
}

bool MemoryWrites::may_be_written_between(const Value& value, const Node& first, const Node& second) const {
  return may_be_written(value, between(first, second));
}

bool MemoryWrites::may_be_written_after(const Value& value, const Node& first) const {
  return may_be_written(value, {spans_.at(&first).end, next_});
}

bool MemoryWrites::state_may_change_between(const Node& first, const Node& second) const {
  return any_in(state_changes_, between(first, second));
}

bool MemoryWrites::may_be_written_within(const Value& value, const Node& node) const {
  return may_be_written(value, within(node));
}

bool MemoryWrites::may_be_written_itself_within(const Value& value, const Node& node) const {
  return is_written(aliases_.set_of(value), memory_kinds_of(value.type()), within(node));
}

bool MemoryWrites::state_may_change_within(const Node& node) const { return any_in(state_changes_, within(node)); }

}  // namespace sconce
