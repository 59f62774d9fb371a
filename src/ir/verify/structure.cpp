#include "ir/kernel_node.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <algorithm>
#include <array>
#include <unordered_set>

namespace sconce {
namespace {

using Violations = std::vector<Violation>;

void for_each_block(const Block& block, const std::function<void(const Block&)>& visit) {
  visit(block);
  for (const Node* node : block.nodes()) {
    for (const Block* nested : node->blocks()) {
      for_each_block(*nested, visit);
    }
  }
}

void nodes_are_linked_to_their_block(const Graph& graph, Violations& violations) {
  for_each_block(graph.body(), [&](const Block& block) {
    for (const Node* node : block.nodes()) {
      if (node->owning_block() != &block || node->is_erased()) {
        violations.push_back({"nodes_are_linked_to_their_block", print_node_line(*node)});
      }
      for (const Block* nested : node->blocks()) {
        if (nested->owner() != node) {
          violations.push_back(
              {"nodes_are_linked_to_their_block", "a block of " + print_node_line(*node) + " has another owner"});
        }
      }
    }
  });
}

void everything_belongs_to_the_graph(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    const auto foreign = [&](const Value* value) { return &value->graph() != &graph; };
    if (&node->graph() != &graph || std::ranges::any_of(node->inputs(), foreign)) {
      violations.push_back({"everything_belongs_to_the_graph", print_node_line(*node)});
    }
  });
}

// Every input is in its value's list of uses, and every use is an input.
void uses_match_inputs(const Graph& graph, Violations& violations) {
  const auto has_use = [](const Value* value, const Node* user, size_t index) {
    return std::ranges::any_of(value->uses(), [&](const Use& use) { return use.user == user && use.index == index; });
  };
  const auto check_inputs = [&](const Node* node) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (!has_use(node->input(i), node, i)) {
        violations.push_back({"uses_match_inputs", "input " + std::to_string(i) + " of " + print_node_line(*node)});
      }
    }
    for (const Value* output : node->outputs()) {
      for (const Use& use : output->uses()) {
        if (use.user->is_erased() || use.index >= use.user->inputs().size() || use.user->input(use.index) != output) {
          violations.push_back({"uses_match_inputs", "a use of " + print_value_name(*output) + " is stale"});
        }
      }
    }
  };
  for_each_block(graph.body(), [&](const Block& block) {
    check_inputs(block.param_node());
    check_inputs(block.return_node());
    for (const Node* node : block.nodes()) {
      check_inputs(node);
    }
  });
}

// Every input is defined earlier in the node's block, or before the node around that block.
void inputs_are_defined_before(const Graph& graph, Violations& violations) {
  std::unordered_set<const Value*> defined;
  const std::function<void(const Block&)> visit = [&](const Block& block) {
    std::vector<const Value*> local;
    const auto define = [&](c10::ArrayRef<Value*> values) {
      for (const Value* value : values) {
        defined.insert(value);
        local.push_back(value);
      }
    };
    const auto check_uses = [&](const Node* node) {
      for (const Value* input : node->inputs()) {
        if (!defined.contains(input)) {
          violations.push_back({"inputs_are_defined_before", print_value_name(*input) + " in " + print_node_line(*node)});
        }
      }
    };
    define(block.params());
    for (const Node* node : block.nodes()) {
      check_uses(node);
      for (const Block* nested : node->blocks()) {
        visit(*nested);
      }
      define(node->outputs());
    }
    check_uses(block.return_node());
    for (const Value* value : local) {
      defined.erase(value);
    }
  };
  visit(graph.body());
}

void if_has_two_matching_branches(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() != prim::If) {
      return;
    }
    const bool branches = node->inputs().size() == 1 && node->blocks().size() == 2 &&
                          std::ranges::all_of(node->blocks(), [&](const Block* block) {
                            return block->params().empty() && block->returns().size() == node->outputs().size();
                          });
    if (!branches) {
      violations.push_back({"if_has_two_matching_branches", print_node_line(*node)});
    }
  });
}

// Inputs (trip count, condition, carried…), body (iteration, carried…) -> (condition, carried…), outputs (carried…).
void loop_carries_the_same_values(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() != prim::Loop) {
      return;
    }
    const size_t carried = node->outputs().size();
    if (node->inputs().size() != carried + 2 || node->blocks().size() != 1 ||
        node->block(0)->params().size() != carried + 1 || node->block(0)->returns().size() != carried + 1) {
      violations.push_back({"loop_carries_the_same_values", print_node_line(*node)});
    }
  });
}

// See kernel_node.h.
void kernel_returns_what_it_computes(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() != kKernelKind) {
      return;
    }
    bool sound = node->inputs().empty() && node->blocks().size() == 1 && node->block(0)->params().empty() &&
                 node->block(0)->returns().size() == node->outputs().size();
    std::unordered_set<const Value*> returned;
    for (size_t i = 0; sound && i < node->outputs().size(); ++i) {
      const Value* value = node->block(0)->returns()[i];
      sound = value->node()->owning_block() == node->block(0) && returned.insert(value).second;
    }
    if (!sound) {
      violations.push_back({"kernel_returns_what_it_computes", print_node_line(*node)});
    }
  });
}

// In a kernel, what a node wrote in place has the name of the node's result from then on.
void kernel_names_each_state(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() != kKernelKind || node->blocks().size() != 1) {
      return;
    }
    std::unordered_set<const Value*> overwritten;
    const auto check_uses = [&](const Node* user) {
      for (const Value* input : user->inputs()) {
        if (overwritten.contains(input)) {
          violations.push_back({"kernel_names_each_state", print_node_line(*user)});
        }
      }
    };
    for (const Node* each : node->block(0)->nodes()) {
      check_uses(each);
      if (writes_in_place(*each) && !each->inputs().empty()) {
        overwritten.insert(each->input(0));
      }
    }
    check_uses(node->block(0)->return_node());
  });
}

}  // namespace

std::span<const NamedCheck> structure_checks() {
  static constexpr std::array checks = {
      NamedCheck{"nodes_are_linked_to_their_block", nodes_are_linked_to_their_block},
      NamedCheck{"everything_belongs_to_the_graph", everything_belongs_to_the_graph},
      NamedCheck{"uses_match_inputs", uses_match_inputs},
      NamedCheck{"inputs_are_defined_before", inputs_are_defined_before},
      NamedCheck{"if_has_two_matching_branches", if_has_two_matching_branches},
      NamedCheck{"loop_carries_the_same_values", loop_carries_the_same_values},
      NamedCheck{"kernel_returns_what_it_computes", kernel_returns_what_it_computes},
      NamedCheck{"kernel_names_each_state", kernel_names_each_state},
  };
  return checks;
}

}  // namespace sconce
