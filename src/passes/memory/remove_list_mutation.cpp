#include "passes/memory/remove_list_mutation.h"

#include "analysis/memory/list_writes.h"
#include "ir/constant_operands.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace sconce {
namespace {

// A list that is read between two writes becomes two lists. The limit keeps graphs from growing quadratically.
constexpr size_t kMaxElementsCopied = 64;

// The order of the nodes of a block, which stays valid while lists are moved down.
class Order {
 public:
  explicit Order(const Block& block) : block_(block) {
    for (const Node* node : block.nodes()) {
      positions_[node] = positions_.size();
    }
    positions_[block.return_node()] = positions_.size();
  }

  // Returns the position of the node of the block that is `node` or contains it.
  size_t of(const Node* node) const {
    while (node->owning_block() != &block_) {
      node = node->owning_block()->owner();
    }
    return positions_.at(node);
  }
  void put_in_place_of(const Node& node, const Node& other) { positions_[&node] = positions_.at(&other); }

 private:
  const Block& block_;
  std::unordered_map<const Node*, size_t> positions_;
};

bool has_one_use_in(const Value& value, const Node& user) {
  return std::count_if(value.uses().begin(), value.uses().end(), [&](const Use& use) { return use.user == &user; }) == 1;
}

// Returns the elements of the list after `write`; nothing if they are not known. They are known for a list made for
// this alone.
std::optional<std::vector<Value*>> elements_after(const Node& list, const Node& write) {
  std::vector<Value*> elements = list.inputs().vec();
  const auto known_index = [&] { return constant_index(*write.input(1), elements.size()); };
  switch (list_write_of(write)) {
    case Opcode::kAppend: elements.push_back(write.input(1)); return elements;
    case Opcode::kReverse: std::reverse(elements.begin(), elements.end()); return elements;
    case Opcode::kClear: return std::vector<Value*>();
    case Opcode::kExtend: {
      const Value& other = *write.input(1);
      const bool is_unchanged = other.node()->kind() == prim::ListConstruct &&
                                std::all_of(other.uses().begin(), other.uses().end(), [&](const Use& use) {
                                  return use.user == &write || only_reads_list(*use.user, use.index);
                                });
      if (!is_unchanged) {
        return std::nullopt;
      }
      elements.insert(elements.end(), other.node()->inputs().begin(), other.node()->inputs().end());
      return elements;
    }
    case Opcode::kInsert: {
      const auto* constant = write.input(1)->constant();
      if (!constant || !constant->isInt()) {
        return std::nullopt;
      }
      const auto size = static_cast<int64_t>(elements.size());
      const int64_t index = constant->toInt() + (constant->toInt() < 0 ? size : 0);
      elements.insert(elements.begin() + std::clamp<int64_t>(index, 0, size), write.input(2));
      return elements;
    }
    case Opcode::kSetItem: {
      const auto index = known_index();
      if (!index) {
        return std::nullopt;
      }
      elements[*index] = write.input(2);
      return elements;
    }
    case Opcode::kPop:
    case Opcode::kDelete: {
      const auto index = known_index();
      if (!index) {
        return std::nullopt;
      }
      elements.erase(elements.begin() + static_cast<std::ptrdiff_t>(*index));
      return elements;
    }
    default: return std::nullopt;
  }
}

void set_elements(Node& list, const std::vector<Value*>& elements) {
  const size_t common = std::min(elements.size(), list.inputs().size());
  for (size_t i = 0; i < common; ++i) {
    if (list.input(i) != elements[i]) {
      list.set_input(i, elements[i]);
    }
  }
  while (list.inputs().size() > elements.size()) {
    list.remove_input(list.inputs().size() - 1);
  }
  for (size_t i = common; i < elements.size(); ++i) {
    list.add_input(elements[i]);
  }
}

// Makes the list at the place of `write`, with its elements from there on.
void absorb(Node& list, Node& write, const std::vector<Value*>& elements, Order& order) {
  if (!write.outputs().empty()) {
    // Users of the write's result get the list, or the removed element.
    const bool produces_element = list_write_of(write) == Opcode::kPop;
    const auto index = produces_element ? constant_index(*write.input(1), list.inputs().size()) : std::nullopt;
    write.output()->replace_all_uses_with(index ? list.input(*index) : list.output());
  }
  set_elements(list, elements);
  list.detach();
  list.insert_before(&write);
  order.put_in_place_of(list, write);
  write.erase();
}

// Gives the users that read the list before `write` a list of their own, at the old place.
void keep_for_readers(Node& list, const std::vector<Use>& readers, Order& order) {
  Node* copy = list.graph().create(prim::ListConstruct, list.inputs(), 0);
  copy->set_location(list.location())->insert_before(&list);
  copy->add_output(list.output()->type())->set_name(list.output()->name());
  order.put_in_place_of(*copy, list);
  for (const Use& reader : readers) {
    reader.user->set_input(reader.index, copy->output());
  }
}

// Returns the uses of the list in the order of the block.
std::vector<Use> uses_in_order(const Value& list, const Order& order) {
  std::vector<std::pair<size_t, Use>> uses;
  for (const Use& use : list.uses()) {
    uses.emplace_back(order.of(use.user), use);
  }
  std::sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Use> sorted;
  for (const auto& [position, use] : uses) {
    sorted.push_back(use);
  }
  return sorted;
}

enum class Absorbed : uint8_t {
  kNothing,
  kWrites,
  kWritesAndUsers  // the write returned the list, whose users are now users of the list itself
};

// Absorbs writes up to the first use that keeps the list or is not understood. Also stops after a write that returns
// the list to a user, whose place among the users is not known yet.
Absorbed absorb_writes(Node& list, Order& order) {
  Absorbed absorbed = Absorbed::kNothing;
  std::vector<Use> readers;  // readers since the last write
  for (const Use& use : uses_in_order(*list.output(), order)) {
    Node& user = *use.user;
    if (only_reads_list(user, use.index)) {
      readers.push_back(use);
      continue;
    }
    const bool is_write = user.owning_block() == list.owning_block() && use.index == 0 &&
                          has_one_use_in(*list.output(), user) &&
                          (readers.empty() || list.inputs().size() <= kMaxElementsCopied);
    const auto elements = is_write ? elements_after(list, user) : std::nullopt;
    if (!elements) {
      break;
    }
    if (!readers.empty()) {
      keep_for_readers(list, readers, order);
      readers.clear();
    }
    const bool returns_something = !user.outputs().empty() && !user.output()->uses().empty();
    absorb(list, user, *elements, order);
    absorbed = Absorbed::kWrites;
    if (returns_something) {
      return Absorbed::kWritesAndUsers;
    }
  }
  return absorbed;
}

bool sweep(const Block& block) {
  bool changed = false;
  std::vector<Node*> lists;
  for (Node* node : block.nodes()) {
    for (const Block* nested : node->blocks()) {
      changed |= sweep(*nested);
    }
    const bool is_written = node->kind() == prim::ListConstruct &&
                            std::any_of(node->output()->uses().begin(), node->output()->uses().end(), [](const Use& use) {
                              return use.index == 0 && list_write_of(*use.user) != Opcode::kOpaque;
                            });
    if (is_written) {
      lists.push_back(node);
    }
  }
  if (!lists.empty()) {
    Order order(block);
    for (Node* list : lists) {
      Absorbed absorbed = Absorbed::kWritesAndUsers;
      while (absorbed == Absorbed::kWritesAndUsers) {
        absorbed = absorb_writes(*list, order);
        changed |= absorbed != Absorbed::kNothing;
      }
    }
  }
  return changed;
}

}  // namespace

bool remove_list_mutation(Graph& graph) {
  bool changed = false;
  // Extending a list by another may have become possible because that one is no longer written.
  while (sweep(graph.body())) {
    changed = true;
  }
  return changed;
}

}  // namespace sconce
