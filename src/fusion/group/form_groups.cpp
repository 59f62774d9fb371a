#include "fusion/group/form_groups.h"

#include "analysis/effects.h"
#include "analysis/memory/list_writes.h"
#include "base/flat_map.h"
#include "fusion/group/draws.h"
#include "fusion/group/known_dtypes.h"
#include "fusion/group/raise_reductions.h"
#include "fusion/group/views.h"
#include "fusion/program/cost_model.h"
#include "fusion/program/operators.h"
#include "fusion/program/reductions.h"
#include "ir/kernel_node.h"
#include "ir/memory_types.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

namespace sconce {
namespace {

// Returns whether the node unpacks the list of views that an operator returns.
bool unpacks_views(const Node& node) {
  return node.opcode() == Opcode::kListUnpack && is_index_view(*node.input(0)->node()) &&
         unpacking_node(*node.input(0)) == &node;
}

struct Member {
  Node* node;
  GroupRole role;
};

bool contains(std::span<const Member> members, const Node* node) {
  return std::ranges::any_of(members, [&](const Member& member) { return member.node == node; });
}

bool is_used_outside(const Node& node, std::span<const Member> members) {
  return std::ranges::any_of(node.outputs(), [&](const Value* output) {
    return std::ranges::any_of(output->uses(), [&](const Use& use) { return !contains(members, use.user); });
  });
}

// Lets nodes read what an earlier one wrote as that one's result: so the block tells each state of the tensor. Of a tensor
// that the nodes make, those outside see the last state.
void name_states(std::span<Node* const> nodes) {
  FlatMap<Value*, Value*> states;
  const auto is_inside = [&](const Node* node) { return std::ranges::find(nodes, node) != nodes.end(); };
  for (Node* node : nodes) {
    // The target is taken before the inputs are renamed: states are found by the tensor's first name.
    Value* const target = writes_in_place(*node) ? node->input(0) : nullptr;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (const auto state = states.find(node->input(i)); state != states.end()) {
        node->set_input(i, state->second);
      }
    }
    if (target != nullptr) {
      states[target] = node->output();
    }
  }
  for (const auto& [target, state] : states) {
    const auto uses = target->uses();
    for (const Use& use : c10::SmallVector<Use, 4>(uses.begin(), uses.end())) {
      // A tensor from outside is the same object after the writes, so it keeps its name there (ir/kernel_node.h).
      if (is_inside(target->node()) && !is_inside(use.user)) {
        use.user->set_input(use.index, state);
      }
    }
  }
}

// Makes a kernel node of the members. They fall apart at a view that nodes outside use, or that is one of what a reduction
// computes, at the parts of a cut that is not among them, at a copy of a value from outside, and where reductions of other
// dimensions meet.
bool make_kernels(std::span<const Member> members) {
  std::vector<Node*> nodes;
  std::unordered_map<const Node*, const Node*> reductions;  // by node, a reduction of which it is computed
  bool computes = false;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto& [node, role] = members[i];
    const Node* reduction = role == GroupRole::kReduction ? node : nullptr;
    bool are_apart = false;
    for (const Value* input : node->inputs()) {
      if (const auto before = reductions.find(input->node()); before != reductions.end()) {
        reduction = reduction == nullptr ? before->second : reduction;
        are_apart = are_apart || !may_share_kernel(*reduction, *before->second);
      }
    }
    if (reduction != nullptr) {
      reductions[node] = reduction;
    }
    // A kernel's results are memory of its own. A view among them would not share memory with its base. And kernels do not
    // read what they reduce of other rows.
    const bool is_seen_view = role == GroupRole::kView && (reduction != nullptr || is_used_outside(*node, members));
    // A kernel's operands are tensors and numbers (NodeGroup), no lists of views.
    const bool lacks_source = (role == GroupRole::kCopy || node->opcode() == Opcode::kListUnpack) &&
                              !contains(members.first(i), node->input(0)->node());
    if (is_seen_view || lacks_source || are_apart) {
      // The first members are examined again: one of their views may now be used outside. The node stays by itself, or
      // begins the next kernel if it does not fit the reductions before it.
      const bool made_before = make_kernels(members.first(i));
      return make_kernels(members.subspan(are_apart ? i : i + 1)) || made_before;
    }
    computes = computes || role != GroupRole::kView;
    nodes.push_back(node);
  }
  if (computes) {
    // States are named first: users outside read the last state of a tensor that the nodes make, and the kernel node returns
    // what they read.
    name_states(nodes);
    make_kernel_node(nodes);
  }
  return computes;
}

// Returns the tensor whose memory the value may be, as far as the operators tell that made it.
const Value* origin_of(const Value* value) {
  while (true) {
    const Node* node = value->node();
    node = node->opcode() == Opcode::kListUnpack ? node->input(0)->node() : node;
    const bool may_share = node->schema() != nullptr && !node->inputs().empty() &&
                           node->input(0)->type()->kind() == c10::TypeKind::TensorType &&
                           (node->op().results_may_share_memory ||
                            (!node->schema()->returns().empty() && node->schema()->returns()[0].alias_info() != nullptr));
    if (!may_share) {
      return value;
    }
    value = node->input(0);
  }
}

// Returns whether the node writes a tensor whose memory the other one reads or writes under another name.
bool writes_operand_of(const Node& node, const Node& other) {
  // Reads under the tensor's own name are in order: each state has a name (name_states).
  return writes_in_place(node) && std::ranges::any_of(other.inputs(), [&](const Value* input) {
           return input != node.input(0) && input->type()->kind() == c10::TypeKind::TensorType &&
                  origin_of(input) == origin_of(node.input(0));
         });
}

// Returns whether running the node gives another result after a write to the elements of some tensor, or may raise: the
// write must then come first if it does.
bool depends_on_writes(const Node& node) {
  // A prim::GetAttr reads an object, and no elements.
  const bool reads = node.op().reads != Reads::kMetadata && !node.op().moves_operands &&
                     std::ranges::any_of(node.inputs(), [](const Value* input) { return holds_memory(input->type()); });
  return (reads && node.opcode() != Opcode::kGetAttr) || may_raise(node);
}

// The group that a walk through a block adds to. The walk is greedy: a node joins the group, may run before it, or closes
// it, and no group is opened again.
class OpenGroup {
 public:
  OpenGroup(GroupMoves moves, bool has_stable_sizes) : moves_(moves), has_stable_sizes_(has_stable_sizes) {}

  void visit(Node& node) {
    GroupRole role = role_in_group(node);
    // The object of a view must not change while the kernel reads through it.
    role = role == GroupRole::kView && !has_stable_sizes_ ? GroupRole::kNone : role;
    // Where autograd records operators, nothing is recorded for a device.
    role = role == GroupRole::kDraw && moves_ == GroupMoves::kNone ? GroupRole::kNone : role;
    if (role == GroupRole::kNone) {
      pass(node);
      return;
    }
    // The kernel of a draw is of one node (make_drawing_kernel), so nothing joins it.
    if (role == GroupRole::kDraw) {
      if (writes_in_place(node)) {
        node.output()->replace_all_uses_with(node.input(0));
      }
      close();
      members_.push_back({&node, role});
      close();
      return;
    }
    // Result and operand are one object. Later nodes name it as the operand: another name would end the group
    // (writes_operand_of).
    if (role == GroupRole::kWrite) {
      node.output()->replace_all_uses_with(node.input(0));
    }
    if (conflicts(node, role)) {
      close();
    }
    const size_t more = role == GroupRole::kReduction ? cost_model::kWeightOfReduction : 1;
    if (weight_ + more > cost_model::kMaxGroupWeight || (passed_operator_ && !is_connected(node))) {
      close();
    }
    weight_ += more;
    if (role == GroupRole::kCopy) {
      close_before_views();
    }
    members_.push_back({&node, role});
    if (role == GroupRole::kCopy) {
      close();
    }
  }

  void close() {
    std::span<const Member> rest = members_;
    while (!rest.empty()) {
      // Members of a group without writes stay together, independent ones too: one call computes them.
      const auto first = rest.first(has(GroupRole::kWrite) ? connected_prefix(rest) : rest.size());
      changed_ = make_kernels(first) || changed_;
      rest = rest.subspan(first.size());
    }
    members_.clear();
    weight_ = 0;
    passed_operator_ = false;
  }

  bool changed() const { return changed_; }

 private:
  // Keeps the group open if the node, which is no member, may run before it.
  void pass(const Node& node) {
    const bool is_operator = node.schema() != nullptr && std::ranges::any_of(node.outputs(), [](const Value* output) {
                               return holds_memory(output->type());
                             });
    // The group will stand in the place of its last node. So the node runs before all members, also before those that write.
    const bool stays = node.opcode() == Opcode::kConstant ||
                       (node.blocks().empty() && !effects_of(node).any() && !uses_member(node) &&
                        !(has(GroupRole::kWrite) && depends_on_writes(node)) &&
                        (!is_operator || (moves_ == GroupMoves::kOperators && !node.op().reads_state)));
    if (!stays) {
      close();
    } else {
      passed_operator_ = passed_operator_ || (is_operator && !members_.empty());
    }
  }

  // Returns the length of the shortest prefix such that no member after it uses what the prefix computes or writes. A kernel
  // that writes the tensors of many parameters would step through more pieces of memory at once than caches tell apart; and
  // where two parameters share memory, only theirs must run without a kernel.
  static size_t connected_prefix(std::span<const Member> members) {
    size_t end = 1;
    for (size_t i = 0; i < end; ++i) {
      const Node& node = *members[i].node;
      for (size_t k = members.size(); k-- > end;) {
        const auto inputs = members[k].node->inputs();
        if (std::ranges::any_of(inputs, [&](const Value* input) {
              return input->node() == &node || (members[i].role == GroupRole::kWrite && input == node.input(0));
            })) {
          end = k + 1;
        }
      }
    }
    return end;
  }

  bool has(GroupRole role) const {
    return std::ranges::any_of(members_, [&](const Member& member) { return member.role == role; });
  }

  // Returns whether no kernel computes the node together with the members, because of what one of them writes.
  bool conflicts(const Node& node, GroupRole role) const {
    // A reduction passes over its row several times, and a view reads an element in the place of another: both may read what
    // the kernel has already written.
    const bool moves_elements =
        role == GroupRole::kReduction || role == GroupRole::kCopy || (role == GroupRole::kView && uses_member(node));
    const bool have_moved = std::ranges::any_of(members_, [&](const Member& member) {
      return member.role == GroupRole::kReduction || (member.role == GroupRole::kView && uses_member(*member.node));
    });
    return (role == GroupRole::kWrite && have_moved) || (moves_elements && has(GroupRole::kWrite)) ||
           std::ranges::any_of(members_, [&](const Member& member) {
             return writes_operand_of(node, *member.node) || writes_operand_of(*member.node, node);
           });
  }

  bool uses_member(const Node& node) const {
    const auto inputs = node.inputs();
    return std::ranges::any_of(inputs, [&](const Value* input) { return contains(members_, input->node()); });
  }

  // Returns whether the node uses a member, or a tensor that a member uses.
  bool is_connected(const Node& node) const {
    return uses_member(node) || std::ranges::any_of(members_, [&](const Member& member) {
             const auto theirs = member.node->inputs();
             return std::ranges::any_of(node.inputs(), [&](const Value* input) {
               return input->type()->kind() == c10::TypeKind::TensorType && std::ranges::find(theirs, input) != theirs.end();
             });
           });
  }

  // The operator after the views may return a view after all. Then what is computed before the views still has a kernel.
  void close_before_views() {
    auto views = members_.end();
    while (views != members_.begin() && (views - 1)->role == GroupRole::kView) {
      --views;
    }
    changed_ = make_kernels({members_.begin(), views}) || changed_;
    members_.erase(members_.begin(), views);
  }

  const GroupMoves moves_;
  const bool has_stable_sizes_;
  std::vector<Member> members_;
  size_t weight_ = 0;
  bool passed_operator_ = false;  // an operator of tensors stands between the members and the node that is visited
  bool changed_ = false;
};

bool form_groups(const Block& block, GroupMoves moves, bool has_stable_sizes) {
  OpenGroup group(moves, has_stable_sizes);
  bool changed = false;
  for (Node* node : block.nodes()) {
    group.visit(*node);
    // The block of a kernel node is a group already.
    if (node->opcode() == Opcode::kKernel) {
      continue;
    }
    for (const Block* nested : node->blocks()) {
      changed = form_groups(*nested, moves, has_stable_sizes) || changed;
    }
  }
  group.close();
  return changed || group.changed();
}

}  // namespace

// A node that unpacks a list of views has the role of a view.
GroupRole role_in_group(const Node& node) {
  if (unpacks_views(node)) {
    return GroupRole::kView;
  }
  // Draws come before the question for effects: to draw is one.
  if (may_draw_by_kernel(node)) {
    return GroupRole::kDraw;
  }
  const bool is_write = may_write_in_place(node.op());
  if (node.schema() == nullptr || node.op().is_language() || node.op().runs_under_autocast ||
      (effects_of(node).any() && !is_write)) {
    return GroupRole::kNone;
  }
  // A kernel takes tensors and numbers. Any other argument has to be a constant.
  const bool can_read = std::ranges::all_of(node.inputs(), [](const Value* input) {
    const c10::TypeKind kind = input->type()->kind();
    return input->node()->opcode() == Opcode::kConstant || kind == c10::TypeKind::TensorType ||
           kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType;
  });
  if (!can_read) {
    return GroupRole::kNone;
  }
  if (is_write) {
    return is_known_to_be_refused(node) ? GroupRole::kNone : GroupRole::kWrite;
  }
  // Views come before copies: `contiguous` is a view where all users read elements, so that no copy is made.
  if (is_index_view(node)) {
    return GroupRole::kView;
  }
  if (may_copy(node)) {
    return GroupRole::kCopy;
  }
  // Other results may be the operand itself, or share its memory, while a kernel's results are memory of their own.
  const bool has_rule = has_element_rule(node.op()) && (produces_new_tensor(node) || casts_to_other_dtype(node)) &&
                        !is_known_to_be_refused(node);
  return !has_rule ? GroupRole::kNone : may_reduce(node.op()) ? GroupRole::kReduction : GroupRole::kPointwise;
}

bool form_groups(Graph& graph, GroupMoves moves) {
  // Reductions rise first, so that each finds the group of what it reduces open. Where autograd may record operators, none
  // rises: gradients are added up in their order (GroupMoves).
  const bool has_raised = moves == GroupMoves::kOperators && raise_reductions(graph);
  return form_groups(graph.body(), moves, !may_change_sizes(graph)) || has_raised;
}

bool form_groups(Graph& graph) { return form_groups(graph, GroupMoves::kOperators); }

}  // namespace sconce
