#include "executor/split_call.h"

#include "analysis/effects.h"
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

bool is_never_recordable(const Node& node) {
  const auto is_so = [](const Node& each) {
    const Op& op = each.op();
    return has_sizes_by_elements(op) || is_of_custom_class(each) ||
           (op.dispatched && may_do_more_than_compute(*op.dispatched));
  };
  bool is = is_so(node);
  for (const Block* block : node.blocks()) {
    for_each_node(*block, [&](const Node* nested) { is = is || is_so(*nested); });
  }
  return is;
}

bool assigns_attributes(const Graph& graph) {
  bool assigns = false;
  for_each_node(graph.body(), [&](const Node* node) {
    assigns = assigns || (node->opcode() == Opcode::kSetAttr && node->input(0)->node()->opcode() != Opcode::kCreateObject);
  });
  return assigns;
}

bool is_number(const Value& value) {
  const c10::TypeKind kind = value.type()->kind();
  return kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType ||
         kind == c10::TypeKind::NoneType || kind == c10::TypeKind::StringType || kind == c10::TypeKind::DeviceObjType;
}

class CallSplitter {
 public:
  explicit CallSplitter(const Graph& graph) : graph_(graph), may_change_sizes_(may_change_sizes(graph)) {
    for (Node* node : graph.body().nodes()) {
      positions_[node] = nodes_.size();
      nodes_.push_back(node);
    }
  }

  std::optional<CallParts> run() {
    // Each part reads attributes again, as they are when it begins.
    if (!find_cut() || assigns_attributes(graph_)) {
      return std::nullopt;
    }
    for (size_t i = 0; i < cut_; ++i) {
      for (const Value* output : nodes_[i]->outputs()) {
        if (std::ranges::any_of(output->uses(), [&](const Use& use) { return position_of(*use.user) >= cut_; })) {
          need(*output);
        }
      }
    }
    return CallParts{make_first(), make_rest()};
  }

 private:
  // A `with` block is not cut.
  bool find_cut() {
    size_t depth = 0;
    bool waits = false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      depth += nodes_[i]->opcode() == Opcode::kEnter ? 1 : 0;
      depth -= nodes_[i]->opcode() == Opcode::kExit ? 1 : 0;
      waits = waits || is_never_recordable(*nodes_[i]);
      if (waits && depth == 0) {
        cut_ = i + 1;
        waits = false;
      }
    }
    return cut_ > 0 && cut_ < nodes_.size();
  }

  size_t position_of(const Node& node) const {
    const Node* around = &node;
    while (around->owning_block() != nullptr && around->owning_block()->owner() != nullptr) {
      around = around->owning_block()->owner();
    }
    const auto found = positions_.find(around);
    return found == positions_.end() ? nodes_.size() : found->second;  // the return node
  }

  // Returns whether `rest` may run the node again: it then finds what it has found before.
  bool is_repeatable(const Node& node) const {
    if (node.opcode() == Opcode::kConstant || node.opcode() == Opcode::kGetAttr || node.opcode() == Opcode::kUninitialized) {
      return true;
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
    for (size_t i = nodes.size(); i-- > cut_;) {
      nodes[i]->erase();
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
    for (size_t i = cut_; i-- > 0;) {
      if (!repeated_.contains(i)) {
        nodes[i]->erase();
      }
    }
    return rest;
  }

  const Graph& graph_;
  const bool may_change_sizes_;
  std::vector<Node*> nodes_;
  std::unordered_map<const Node*, size_t> positions_;
  size_t cut_ = 0;  // the first node of `rest`
  std::unordered_set<const Value*> seen_;
  std::vector<std::pair<size_t, size_t>> crossing_;  // values of `first` by their node and offset
  std::unordered_set<size_t> repeated_;              // nodes of `first` that `rest` has as well
};

}  // namespace

std::optional<CallParts> split_call(const Graph& graph) { return CallSplitter(graph).run(); }

}  // namespace sconce
