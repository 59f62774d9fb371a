#include "autodiff/slice.h"

#include "analysis/appended_lists.h"
#include "analysis/effects.h"
#include "analysis/nested_uses.h"
#include "autodiff/differentiable_blocks.h"
#include "autodiff/differentiable_nodes.h"
#include "autodiff/visibility.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

class Slicing {
 public:
  Slicing(Graph& graph, size_t min_nodes) : min_nodes_(min_nodes) { visit(graph.body()); }

  DifferentiableSlices take() { return {std::move(slices_), std::move(outside_)}; }

 private:
  struct Member {
    Node* node;
    bool is_differentiated;
    bool is_kept;  // even where no gradient flows through the nodes before it
  };
  using Members = std::vector<Member>;

  void visit(Block& block) {
    const Block* const around = std::exchange(block_, &block);
    for (Node* node : block.nodes()) {
      if (node->opcode() == Opcode::kConstant) {
        continue;
      }
      Role role = node->blocks().empty()                             ? role_of(*node)
                  : is_differentiable_block_node(*node, visibility_) ? Role::kDifferentiated
                                                                     : Role::kOutside;
      if (role == Role::kDifferentiated && uses_visible_result(*node)) {
        finish(NotDifferentiated::kVisible);
      }
      if (role == Role::kOutside) {
        refuse(*node, why_outside(*node));
      } else if (role == Role::kDifferentiated && !has_its_list(*node)) {
        role = Role::kOutside;
        refuse(*node, NotDifferentiated::kList);
      }
      if (role == Role::kOutside) {
        if (ends_slice(*node)) {
          finish();
        }
        const auto members = std::exchange(members_, {});
        const auto results = std::exchange(results_, {});
        const bool writes = std::exchange(writes_, false);
        for (Block* nested : node->blocks()) {
          visit(*nested);
        }
        members_ = members;
        results_ = results;
        writes_ = writes;
        continue;
      }
      members_.push_back({node, role == Role::kDifferentiated, role == Role::kDifferentiated});
      writes_ |= effects_of(*node).writes;
      results_.insert(node->outputs().begin(), node->outputs().end());
    }
    finish();
    block_ = around;
  }

  // Returns whether the slice has, or can have, the list that the node joins, the lists that it fills, or the cut that made
  // the list it unpacks.
  bool has_its_list(const Node& node) {
    if (joins_appended_list(node)) {
      return results_.contains(node.input(0)) && may_join(*node.input(0), visibility_);
    }
    const auto filled = lists_filled_by(node);
    return joins_list(node) ? take_list(*node.input(0)->node())
           : node.opcode() == Opcode::kListUnpack
               ? results_.contains(node.input(0))
               : std::all_of(filled.begin(), filled.end(), [this](const Value* list) { return take_list(*list->node()); });
  }

  // Makes the list that a node of the slice joins a part of the slice. Returns false if another slice has it.
  bool take_list(Node& list) {
    const auto found =
        std::find_if(members_.begin(), members_.end(), [&](const Member& member) { return member.node == &list; });
    if (found != members_.end()) {
      found->is_kept = true;
      return true;
    }
    const bool is_free = taken_.insert(&list).second && list.owning_block() == block_;
    if (is_free) {
      members_.insert(members_.begin(), {&list, false, true});
      results_.insert(list.output());
    }
    return is_free;
  }

  // The slice runs in the place of its last node, after every other node that stands between its nodes.
  bool ends_slice(const Node& node) {
    return (has_effects(node) && (writes_ || !only_raises(node))) || (writes_ && reads_memory(node)) ||
           (uses_any(node, results_) && !release_operands(node));
  }

  // Takes the nodes that compute what `node` uses out of the slice, so that they run where they stand. Returns false if that
  // takes one that a gradient flows through or that has effects.
  bool release_operands(const Node& node) {
    std::unordered_set<const Node*> released;
    const auto release = [&](const Value* value) {
      if (results_.contains(value)) {
        released.insert(value->node());
      }
    };
    for_each_operand(node, release);
    for (auto member = members_.rbegin(); member != members_.rend(); ++member) {
      if (released.contains(member->node)) {
        if (member->is_differentiated || member->is_kept || has_effects(*member->node)) {
          return false;
        }
        for_each_operand(*member->node, release);
      }
    }
    std::erase_if(members_, [&](const Member& member) { return released.contains(member.node); });
    for (const Node* each : released) {
      for (const Value* output : each->outputs()) {
        results_.erase(output);
      }
    }
    return true;
  }

  // Returns whether the node's only effect is that it may raise. The nodes of a slice that come before it need not run
  // first, unless they write: an exception ends the call without their results.
  static bool only_raises(const Node& node) {
    if (node.opcode() == Opcode::kRaise) {
      return true;
    }
    bool only = !effects_of(node).any();
    for (const Block* block : node.blocks()) {
      for (const Node* nested : block->nodes()) {
        only = only && only_raises(*nested);
      }
    }
    return only;
  }

  static bool reads_memory(const Node& node) {
    return !node.blocks().empty() || (node.schema() != nullptr && node.op().reads == Reads::kElements);
  }

  bool uses_visible_result(const Node& node) {
    bool uses_one = false;
    for_each_operand(node, [&](const Value* operand) {
      uses_one = uses_one || (results_.contains(operand) && may_require_grad(*operand) && visibility_.is_visible(*operand));
    });
    return uses_one;
  }

  void refuse(const Node& node, std::optional<NotDifferentiated> reason) {
    if (reason && carries_gradient(node)) {
      outside_.emplace_back(&node, *reason);
    }
  }

  static bool is_differentiated(const Member& member) { return member.is_differentiated; }

  // Leaves out the bystanders at both ends.
  void add_slice(const Members& members) {
    const auto first = std::find_if(members.begin(), members.end(), [](const Member& member) { return member.is_kept; });
    const auto last = std::find_if(members.rbegin(), members.rend(), is_differentiated).base();
    if (first < last) {
      DifferentiableSlice& slice = slices_.emplace_back();
      std::for_each(first, last, [this](const Member& member) { taken_.insert(member.node); });
      std::transform(first, last, std::back_inserter(slice.nodes), [](const Member& member) { return member.node; });
    }
  }

  // Returns whether the node, or a node nested in it, has other effects than to draw random numbers and to fill lists.
  static bool writes(const Node& node) {
    Effects effects = effects_of(node);
    effects.random = false;
    bool writes = effects.any() && node.opcode() != Opcode::kAppend;
    for (const Block* block : node.blocks()) {
      for (const Node* nested : block->nodes()) {
        writes = writes || Slicing::writes(*nested);
      }
    }
    return writes;
  }

  // Returns for each member whether it is a bystander that needs nothing of the others but of such bystanders. It may run
  // outside of the slice as well.
  std::vector<bool> free_bystanders() const {
    std::unordered_set<const Node*> bound;
    std::vector<bool> is_free;
    for (const Member& member : members_) {
      bool needs_bound = false;
      for_each_operand(*member.node, [&](const Value* operand) { needs_bound |= bound.contains(operand->node()); });
      is_free.push_back(!member.is_differentiated && !member.is_kept && !needs_bound && !has_effects(*member.node));
      if (!is_free.back()) {
        bound.insert(member.node);
      }
    }
    return is_free;
  }

  // Returns the parts of the slice that exchange no values. One autograd node for two of them would let backward of one
  // visit what the other is computed from. What free bystanders compute for several parts, they compute outside. Nodes that
  // draw random numbers stay in one part, in their order; a slice that writes stays as it is.
  std::vector<Members> connected_parts() const {
    if (std::any_of(members_.begin(), members_.end(), [](const Member& member) { return writes(*member.node); })) {
      return {members_};
    }
    const Node* draws_before = nullptr;
    constexpr size_t kOutside = SIZE_MAX;
    constexpr size_t kUnused = SIZE_MAX - 1;
    const std::vector<bool> is_free = free_bystanders();
    std::unordered_map<const Node*, size_t> positions;
    std::vector<size_t> part_of;  // the parts by number, one per member
    for (size_t i = 0; i < members_.size(); ++i) {
      part_of.push_back(is_free[i] ? kUnused : i);
      const auto join = [&](const Node* other) {
        const auto found = positions.find(other);
        if (!is_free[i] && found != positions.end() && !is_free[found->second]) {
          std::replace(part_of.begin(), part_of.end(), size_t{part_of[found->second]}, i);
        }
      };
      for_each_operand(*members_[i].node, [&](const Value* operand) { join(operand->node()); });
      if (has_effects(*members_[i].node)) {
        join(draws_before);
        draws_before = members_[i].node;
      }
      positions.emplace(members_[i].node, i);
    }
    for (size_t i = members_.size(); i-- > 0;) {
      part_of[i] = part_of[i] == kUnused ? kOutside : part_of[i];  // it stays where it stands
      for_each_operand(*members_[i].node, [&](const Value* operand) {
        const auto maker = positions.find(operand->node());
        if (maker != positions.end() && is_free[maker->second]) {
          size_t& part = part_of[maker->second];
          part = part == kUnused || part == part_of[i] ? part_of[i] : kOutside;
        }
      });
    }
    std::map<size_t, Members> parts;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (part_of[i] < kUnused) {
        parts[part_of[i]].push_back(members_[i]);
      }
    }
    std::vector<Members> found;
    for (auto& [number, part] : parts) {
      found.push_back(std::move(part));
    }
    return found;
  }

  // `if_short`: why a slice with too few nodes ends here.
  void finish(NotDifferentiated if_short = NotDifferentiated::kTooFew) {
    size_t differentiated = 0;
    for (const Member& member : members_) {
      differentiated += member.is_differentiated ? 1 + differentiated_nodes_in(*member.node) : 0;
    }
    if (differentiated >= std::max<size_t>(min_nodes_, 1)) {
      for (const Members& part : connected_parts()) {
        add_slice(part);
      }
    } else {
      for (const Member& member : members_) {
        if (member.is_differentiated) {
          refuse(*member.node, if_short);
        }
      }
    }
    members_.clear();
    results_.clear();
    writes_ = false;
  }

  const size_t min_nodes_;
  std::vector<DifferentiableSlice> slices_;
  std::vector<std::pair<const Node*, NotDifferentiated>> outside_;
  Visibility visibility_;
  // The slice that is being formed.
  Members members_;
  ValueSet results_;
  bool writes_ = false;
  const Block* block_ = nullptr;
  std::unordered_set<const Node*> taken_;  // by finished slices
};

}  // namespace

DifferentiableSlices slice_differentiable(Graph& graph, size_t min_nodes) { return Slicing(graph, min_nodes).take(); }

}  // namespace sconce
