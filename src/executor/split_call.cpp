#include "executor/split_call.h"

#include "analysis/effects.h"
#include "ir/kernel_node.h"
#include "ops/foreign.h"
#include "trace/traceable.h"

#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace sconce {
namespace {

bool is_of_custom_class(const Node& node) {
  const auto type = node.opcode() == Opcode::kCallMethod ? node.input(0)->type()->cast<c10::ClassType>() : nullptr;
  return type != nullptr && type->name() && type->name()->qualifiedName().starts_with("__torch__.torch.classes.");
}

// Returns whether the predicate holds for the node, or for one nested in it.
template <typename Predicate>
bool holds_within(const Node& node, const Predicate& predicate) {
  bool holds = predicate(node);
  for (const Block* block : node.blocks()) {
    for_each_node(*block, [&](const Node* nested) { holds = holds || predicate(*nested); });
  }
  return holds;
}

bool is_never_recordable(const Node& node) {
  return holds_within(node, [](const Node& each) {
    const Op& op = each.op();
    return has_sizes_by_elements(op) || is_of_custom_class(each) ||
           (op.dispatched && may_do_more_than_compute(*op.dispatched));
  });
}

bool assigns_attributes(const Graph& graph) {
  bool assigns = false;
  for_each_node(graph.body(), [&](const Node* node) {
    assigns = assigns || (node->opcode() == Opcode::kSetAttr && node->input(0)->node()->opcode() != Opcode::kCreateObject);
  });
  return assigns;
}

// Returns whether the node, or one nested in it, may write memory that other nodes read. A mark writes none.
bool may_write(const Node& node) {
  return holds_within(node, [](const Node& each) {
    const Effects effects = effects_of(each);
    return each.blocks().empty() && each.opcode() != Opcode::kRequiresGrad_ && (effects.writes || effects.unknown);
  });
}

bool is_number(const Value& value) {
  const c10::TypeKind kind = value.type()->kind();
  return kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType ||
         kind == c10::TypeKind::NoneType || kind == c10::TypeKind::StringType || kind == c10::TypeKind::DeviceObjType;
}

class CallSplitter {
 public:
  // `graph`: without groups.
  explicit CallSplitter(const Graph& graph) : graph_(graph), may_change_sizes_(may_change_sizes(graph)) {
    for (Node* node : graph.body().nodes()) {
      positions_[node] = nodes_.size();
      nodes_.push_back(node);
    }
    is_first_.resize(nodes_.size());
  }

  std::optional<CallParts> run() {
    // Each part reads attributes again, as they are when it begins.
    if (assigns_attributes(graph_) || !(can_be_brought_forward() || find_cut())) {
      return std::nullopt;
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const Value* output : nodes_[i]->outputs()) {
        if (is_first_[i] && std::ranges::any_of(output->uses(), [this](const Use& use) { return is_in_rest(*use.user); })) {
          need(*output);
        }
      }
    }
    return CallParts{make_first(), make_rest()};
  }

 private:
  // If all nodes that are never recordable find indices, such as those of the atoms of one kind, and these and what they are
  // computed from may run before all else, they are the first part. `rest` computes again what it reads of the latter: these
  // values may have gradients, and a mark (`requires_grad_`) may come before them.
  bool can_be_brought_forward() {
    const bool writes = std::ranges::any_of(nodes_, [](const Node* node) { return may_write(*node); });
    std::vector<bool> is_first(nodes_.size());
    bool finds_any = false;
    bool has_marks_alone = true;  // no effect so far but marks
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (is_never_recordable(*nodes_[i])) {
        if (!finds_indices(nodes_[i]->op()) || !has_marks_alone || writes || !may_run_early(i, is_first)) {
          return false;
        }
        finds_any = true;
      }
      has_marks_alone = has_marks_alone && (!has_effects(*nodes_[i]) || nodes_[i]->opcode() == Opcode::kRequiresGrad_);
    }
    brings_forward_ = finds_any && std::ranges::find(is_first, false) != is_first.end();
    if (brings_forward_) {
      is_first_ = std::move(is_first);
    }
    return brings_forward_;
  }

  // Adds the node and what it is computed from.
  bool may_run_early(size_t position, std::vector<bool>& is_first) const {
    if (is_first[position]) {
      return true;
    }
    const Node& node = *nodes_[position];
    if (!node.blocks().empty() || has_effects(node) || node.op().reads_state) {
      return false;
    }
    is_first[position] = true;
    return std::ranges::all_of(node.inputs(), [&](const Value* operand) {
      const auto found = positions_.find(operand->node());
      return found == positions_.end() || may_run_early(found->second, is_first);
    });
  }

  // A `with` block is not cut.
  bool find_cut() {
    size_t cut = 0;
    size_t depth = 0;
    bool waits = false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      depth += nodes_[i]->opcode() == Opcode::kEnter ? 1 : 0;
      depth -= nodes_[i]->opcode() == Opcode::kExit ? 1 : 0;
      waits = waits || is_never_recordable(*nodes_[i]);
      if (waits && depth == 0) {
        cut = i + 1;
        waits = false;
      }
    }
    std::fill_n(is_first_.begin(), cut, true);
    return cut > 0 && cut < nodes_.size();
  }

  bool is_in_rest(const Node& node) const {
    const Node* around = &node;
    while (around->owning_block() != nullptr && around->owning_block()->owner() != nullptr) {
      around = around->owning_block()->owner();
    }
    const auto found = positions_.find(around);
    return found == positions_.end() || !is_first_[found->second];  // the return node is
  }

  // Returns whether `rest` may run the node again: it then finds what it has found before.
  bool is_repeatable(const Node& node) const {
    if (node.opcode() == Opcode::kConstant || node.opcode() == Opcode::kGetAttr || node.opcode() == Opcode::kUninitialized) {
      return true;
    }
    if (brings_forward_) {
      return !is_never_recordable(node);
    }
    const auto is_plain = [](const Value* value) { return is_number(*value); };
    const bool reads_numbers = std::ranges::all_of(node.inputs(), is_plain);
    const bool reads_sizes = node.op().reads == Reads::kMetadata && !may_change_sizes_;
    return node.blocks().empty() && !has_effects(node) && !node.op().reads_state && (reads_numbers || reads_sizes) &&
           std::ranges::all_of(node.outputs(), is_plain);
  }

  void need(const Value& value) {
    const Node& node = *value.node();
    if (&node == graph_.body().param_node() || !seen_.insert(&value).second) {
      return;
    }
    if (!is_repeatable(node)) {
      crossing_.emplace_back(positions_.at(&node), value.offset());
      return;
    }
    repeated_.insert(positions_.at(&node));
    for (const Value* operand : node.inputs()) {
      need(*operand);
    }
  }

  static std::vector<Node*> nodes_of(const Graph& graph) {
    std::vector<Node*> nodes;
    for (Node* node : graph.body().nodes()) {
      nodes.push_back(node);
    }
    return nodes;
  }

  std::unique_ptr<Graph> make_first() const {
    std::unique_ptr<Graph> first = graph_.clone();
    const std::vector<Node*> nodes = nodes_of(*first);
    while (!first->outputs().empty()) {
      first->body().remove_return(0);
    }
    for (size_t i = nodes.size(); i-- > 0;) {
      if (!is_first_[i]) {
        nodes[i]->erase();
      }
    }
    for (const auto& [position, offset] : crossing_) {
      first->add_output(nodes[position]->output(offset));
    }
    return first;
  }

  std::unique_ptr<Graph> make_rest() const {
    std::unique_ptr<Graph> rest = graph_.clone();
    const std::vector<Node*> nodes = nodes_of(*rest);
    for (const auto& [position, offset] : crossing_) {
      Value* value = nodes[position]->output(offset);
      value->replace_all_uses_with(rest->add_input(value->name(), value->type()));
    }
    for (size_t i = nodes.size(); i-- > 0;) {
      if (is_first_[i] && !repeated_.contains(i)) {
        nodes[i]->erase();
      }
    }
    return rest;
  }

  const Graph& graph_;
  const bool may_change_sizes_;
  std::vector<Node*> nodes_;
  std::unordered_map<const Node*, size_t> positions_;
  std::vector<bool> is_first_;  // by position
  bool brings_forward_ = false;
  std::unordered_set<const Value*> seen_;
  std::vector<std::pair<size_t, size_t>> crossing_;  // values of `first` by their node and offset
  std::unordered_set<size_t> repeated_;              // nodes of `first` that `rest` has as well
};

}  // namespace

std::optional<CallParts> split_call(const Graph& graph) {
  const std::unique_ptr<Graph> operators = graph.clone();
  dissolve_kernel_nodes(*operators);
  return CallSplitter(*operators).run();
}

}  // namespace sconce
