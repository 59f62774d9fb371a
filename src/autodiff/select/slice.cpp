// The nodes of a block are visited in program order, and the slice that is being formed takes each one that has a role:
//
//   %a = tanh(%x)        member
//   print(…)             outside, has an effect: the slice ends here, because its nodes may not run after this one
//   %b = exp(%a)         member of the next slice
//   %n = size(%x)        auxiliary member
//   if %n: raise …       outside, uses %n: the node of %n is released from the slice and runs where it stands
//   %c = relu(%b)        member of the same slice
#include "autodiff/select/slice.h"

#include "analysis/effects.h"
#include "analysis/memory/appended_lists.h"
#include "analysis/nested_uses.h"
#include "autodiff/select/connected_parts.h"
#include "autodiff/select/differentiable_blocks.h"
#include "autodiff/select/visibility.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace sconce {
namespace {

class SliceFinder {
 public:
  SliceFinder(Graph& graph, const Roles& roles, size_t min_nodes) : roles_(roles), min_nodes_(min_nodes) {
    visit(graph.body());
  }

  DifferentiableSlices take() { return {std::move(slices_), std::move(outside_)}; }

 private:
  // The slice that is being formed.
  struct Slice {
    SliceMembers members;
    ValueSet results;     // of the members
    bool writes = false;  // a member writes memory
  };

  void visit(Block& block) {
    const Block* const around = std::exchange(block_, &block);
    for (Node* node : block.nodes()) {
      if (node->opcode() != Opcode::kConstant) {
        visit(*node);
      }
    }
    finish();
    block_ = around;
  }

  void visit(Node& node) {
    const Role role = role_in_slice(node);
    // User code may hook the value that the node uses: what is computed of it belongs to another autograd node.
    if (role == Role::kDifferentiated && uses_visible_result(node)) {
      finish(NotDifferentiated::kVisible);
    }
    if (role == Role::kOutside) {
      report(node, roles_.why_outside(node));
    } else if (role == Role::kAuxiliary || has_its_list(node)) {
      add(node, role == Role::kDifferentiated);
      return;
    } else {
      report(node, NotDifferentiated::kList);
    }
    if (ends_slice(node)) {
      finish();
    }
    // Blocks have slices of their own; this one may go on after the node.
    Slice before = std::exchange(slice_, {});
    for (Block* nested : node.blocks()) {
      visit(*nested);
    }
    slice_ = std::move(before);
  }

  Role role_in_slice(const Node& node) {
    return node.blocks().empty()                                     ? roles_.of(node)
           : is_differentiable_block_node(node, roles_, visibility_) ? Role::kDifferentiated
                                                                     : Role::kOutside;
  }

  void add(Node& node, bool is_differentiated) {
    slice_.members.push_back({&node, is_differentiated, is_differentiated});
    slice_.writes |= effects_of(node).writes;
    slice_.results.insert(node.outputs().begin(), node.outputs().end());
  }

  // Returns whether the slice has, or can have, the list that the node joins, the lists that it fills, or the cut that made
  // the list it unpacks. Gradients of list elements do not cross from one autograd node to another.
  bool has_its_list(const Node& node) {
    if (joins_appended_list(node)) {
      return slice_.results.contains(node.input(0)) && may_join(*node.input(0), visibility_);
    }
    if (joins_list(node)) {
      return take_list(*node.input(0)->node());
    }
    if (node.opcode() == Opcode::kListUnpack) {
      return slice_.results.contains(node.input(0));
    }
    const auto filled = lists_filled_by(node);
    return std::ranges::all_of(filled, [this](const Value* list) { return take_list(*list->node()); });
  }

  // Makes the list that a node of the slice joins a part of the slice. It may stand before the first member, or
  // have been released. Returns false if another slice has it.
  bool take_list(Node& list) {
    SliceMembers& members = slice_.members;
    const auto found = std::ranges::find_if(members, [&](const SliceMember& member) { return member.node == &list; });
    if (found != members.end()) {
      found->is_kept = true;
      return true;
    }
    const bool is_free = taken_.insert(&list).second && list.owning_block() == block_;
    if (is_free) {
      members.insert(members.begin(), {&list, false, true});
      slice_.results.insert(list.output());
    }
    return is_free;
  }

  // The slice runs in the place of its last node, after every other node that stands between its nodes. So it ends before a
  // node that must run after a member: one that has effects, reads what a member wrote, or uses what a member computes.
  bool ends_slice(const Node& node) {
    return (has_effects(node) && (slice_.writes || !only_raises(node))) || (slice_.writes && reads_memory(node)) ||
           (uses_any(node, slice_.results) && !release_operands(node));
  }

  // Takes the nodes that compute what `node` uses out of the slice, so that they run where they stand. Returns false if that
  // takes one that a gradient flows through or that has effects; the slice is unchanged then.
  bool release_operands(const Node& node) {
    std::unordered_set<const Node*> released;
    const auto release = [&](const Value* value) {
      if (slice_.results.contains(value)) {
        released.insert(value->node());
      }
    };
    for_each_operand(node, release);
    // From the last member to the first: all users of a member are seen before it.
    for (auto member = slice_.members.rbegin(); member != slice_.members.rend(); ++member) {
      if (released.contains(member->node)) {
        if (member->is_kept || has_effects(*member->node)) {
          return false;
        }
        for_each_operand(*member->node, release);
      }
    }
    std::erase_if(slice_.members, [&](const SliceMember& member) { return released.contains(member.node); });
    for (const Node* each : released) {
      for (const Value* output : each->outputs()) {
        slice_.results.erase(output);
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
      uses_one =
          uses_one || (slice_.results.contains(operand) && may_require_grad(*operand) && visibility_.is_visible(*operand));
    });
    return uses_one;
  }

  void report(const Node& node, std::optional<NotDifferentiated> reason) {
    if (reason && autograd_records(node)) {
      outside_.emplace_back(&node, *reason);
    }
  }

  // Ends the slice that is being formed. `if_short`: why it is too short, if it is.
  void finish(NotDifferentiated if_short = NotDifferentiated::kTooFew) {
    size_t differentiated = 0;
    for (const SliceMember& member : slice_.members) {
      differentiated += member.is_differentiated ? 1 + differentiated_nodes_in(*member.node, roles_) : 0;
    }
    if (differentiated >= std::max<size_t>(min_nodes_, 1)) {
      for (const SliceMembers& part : connected_parts(slice_.members)) {
        add_slice(part);
      }
    } else {
      for (const SliceMember& member : slice_.members) {
        if (member.is_differentiated) {
          report(*member.node, if_short);
        }
      }
    }
    slice_ = {};
  }

  // Leaves out the auxiliary nodes at both ends: they run as well outside.
  void add_slice(const SliceMembers& members) {
    const auto first = std::ranges::find_if(members, [](const SliceMember& member) { return member.is_kept; });
    const auto last = std::find_if(members.rbegin(), members.rend(), [](const SliceMember& member) {
                        return member.is_differentiated;
                      }).base();
    if (first < last) {
      DifferentiableSlice& slice = slices_.emplace_back();
      std::for_each(first, last, [&](const SliceMember& member) {
        taken_.insert(member.node);
        slice.nodes.push_back(member.node);
      });
    }
  }

  const Roles& roles_;
  const size_t min_nodes_;
  Visibility visibility_;
  std::vector<DifferentiableSlice> slices_;
  std::vector<std::pair<const Node*, NotDifferentiated>> outside_;
  Slice slice_;
  const Block* block_ = nullptr;           // of the slice
  std::unordered_set<const Node*> taken_;  // by finished slices, or lists at the front of this one
};

}  // namespace

DifferentiableSlices slice_differentiable(Graph& graph, const Roles& roles, size_t min_nodes) {
  return SliceFinder(graph, roles, min_nodes).take();
}

}  // namespace sconce
