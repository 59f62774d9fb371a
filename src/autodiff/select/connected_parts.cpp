#include "autodiff/select/connected_parts.h"

#include "analysis/effects.h"
#include "analysis/nested_uses.h"

#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace sconce {
namespace {

// Returns whether the node, or a node nested in it, has other effects than to draw random numbers and to fill lists.
bool writes(const Node& node) {
  Effects effects = effects_of(node);
  effects.random = false;
  bool any = effects.any() && node.opcode() != Opcode::kAppend;
  for (const Block* block : node.blocks()) {
    for (const Node* nested : block->nodes()) {
      any = any || writes(*nested);
    }
  }
  return any;
}

class PartFinder {
 public:
  explicit PartFinder(const SliceMembers& slice) : slice_(slice), is_free_(free_members()) {
    for (size_t i = 0; i < slice.size(); ++i) {
      positions_.emplace(slice[i].node, i);
    }
  }

  std::vector<SliceMembers> find() {
    unite_bound_members();
    place_free_members();
    std::map<size_t, SliceMembers> parts;
    for (size_t i = 0; i < slice_.size(); ++i) {
      if (part_of_[i] != kOutside) {
        parts[part_of_[i]].push_back(slice_[i]);
      }
    }
    std::vector<SliceMembers> found;
    for (auto& [number, part] : parts) {
      found.push_back(std::move(part));
    }
    return found;
  }

 private:
  static constexpr size_t kOutside = SIZE_MAX;     // in no part
  static constexpr size_t kUnused = SIZE_MAX - 1;  // a free member of which no user has been seen

  std::vector<bool> free_members() const {
    std::unordered_set<const Node*> bound;
    std::vector<bool> is_free;
    for (const SliceMember& member : slice_) {
      bool needs_bound = false;
      for_each_operand(*member.node, [&](const Value* operand) { needs_bound |= bound.contains(operand->node()); });
      is_free.push_back(!member.is_kept && !needs_bound && !has_effects(*member.node));
      if (!is_free.back()) {
        bound.insert(member.node);
      }
    }
    return is_free;
  }

  // Calls `visit` with the positions of the members that make the node's operands.
  void for_each_maker(const Node& node, c10::function_ref<void(size_t)> visit) const {
    for_each_operand(node, [&](const Value* operand) {
      if (const auto maker = positions_.find(operand->node()); maker != positions_.end()) {
        visit(maker->second);
      }
    });
  }

  // Gives bound members that share values one number: that of the last one.
  void unite_bound_members() {
    std::optional<size_t> draws_before;  // the last member that draws random numbers
    for (size_t i = 0; i < slice_.size(); ++i) {
      part_of_.push_back(is_free_[i] ? kUnused : i);
      if (is_free_[i]) {
        continue;
      }
      const auto unite = [&](size_t other) {
        if (!is_free_[other]) {
          std::ranges::replace(part_of_, size_t{part_of_[other]}, i);
        }
      };
      for_each_maker(*slice_[i].node, unite);
      if (has_effects(*slice_[i].node)) {
        if (draws_before) {
          unite(*draws_before);
        }
        draws_before = i;
      }
    }
  }

  // From the last member to the first, so that all users of a free member are placed before it.
  void place_free_members() {
    for (size_t i = slice_.size(); i-- > 0;) {
      part_of_[i] = part_of_[i] == kUnused ? kOutside : part_of_[i];
      for_each_maker(*slice_[i].node, [&](size_t maker) {
        if (is_free_[maker]) {
          size_t& part = part_of_[maker];
          part = part == kUnused || part == part_of_[i] ? part_of_[i] : kOutside;
        }
      });
    }
  }

  const SliceMembers& slice_;
  const std::vector<bool> is_free_;
  std::unordered_map<const Node*, size_t> positions_;
  std::vector<size_t> part_of_;  // per member
};

}  // namespace

std::vector<SliceMembers> connected_parts(const SliceMembers& slice) {
  const bool is_whole = std::ranges::any_of(slice, [](const SliceMember& member) { return writes(*member.node); });
  return is_whole ? std::vector<SliceMembers>{slice} : PartFinder(slice).find();
}

}  // namespace sconce
