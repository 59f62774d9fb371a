#include "autodiff/differentiate.h"

#include "analysis/cut_out.h"
#include "analysis/effects.h"
#include "autodiff/joint/build_nodes.h"
#include "autodiff/joint/joint_graph.h"
#include "autodiff/rules/gradient_rule.h"
#include "autodiff/select/differentiable_blocks.h"
#include "autodiff/select/roles.h"
#include "autodiff/select/slice.h"
#include "autodiff/split/split_joint_graph.h"
#include "ir/differentiable.h"
#include "ir/schema_match.h"
#include "ir/text/print.h"
#include "passes/loops/peel_last_iteration.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace sconce {
namespace {

using Members = std::unordered_set<const Node*>;

// Returns whether the node is one of the members, or nested in one.
bool is_within(const Members& members, const Node* node) {
  while (node != nullptr && !members.contains(node)) {
    node = node->owning_block()->owner();
  }
  return node != nullptr;
}

// The results of a slice that are used outside, and how they get there.
struct Exports {
  std::vector<Value*> results;  // of the differentiable node
  std::vector<Node*> repeated;  // nodes that run again outside, in program order
};

Exports exports_of(const DifferentiableSlice& slice) {
  const Members members(slice.nodes.begin(), slice.nodes.end());
  Members repeated;
  Exports exports;
  for (auto at = slice.nodes.rbegin(); at != slice.nodes.rend(); ++at) {
    Node* node = *at;
    std::vector<Value*> used;
    std::copy_if(node->outputs().begin(), node->outputs().end(), std::back_inserter(used), [&](const Value* output) {
      return std::ranges::any_of(
          output->uses(), [&](const Use& use) { return !is_within(members, use.user) || repeated.contains(use.user); });
    });
    if (used.empty()) {
      continue;
    }
    if (is_cheap_view(*node)) {
      repeated.insert(node);
      exports.repeated.insert(exports.repeated.begin(), node);
    } else {
      exports.results.insert(exports.results.begin(), used.begin(), used.end());
    }
  }
  return exports;
}

Node* make_node(const CutOut& cut, const DifferentiableGraphs& graphs, bool has_effects, Graph& graph) {
  Node* node = graph.create(kDifferentiableKind, cut.operands, 0);
  node->set_attribute(attr::kGradient, std::make_shared<const GradientSignature>(graphs.signature));
  if (has_effects) {
    node->set_attribute(attr::kHasEffects, int64_t{1});
  }
  node->set_attribute(attr::kSubgraph, graphs.forward);
  node->set_attribute(attr::kBackward, graphs.backward);
  node->set_attribute(attr::kGeneralBackward, graphs.general_backward);
  return node;
}

void replace(const DifferentiableSlice& slice, const Exports& exports, Node* node) {
  const Members members(slice.nodes.begin(), slice.nodes.end());
  node->insert_after(slice.nodes.back());
  const auto located = std::ranges::find_if(slice.nodes, [](const Node* each) {
    return each->location() != nullptr && !each->location()->file_line_column().empty();
  });
  node->set_location(located != slice.nodes.end() ? (*located)->location() : nullptr);
  ValueMap outside;
  for (Value* result : exports.results) {
    Value* output = node->add_output(result->type());
    output->set_name(result->name());
    if (result->facts() != nullptr) {
      output->set_facts(*result->facts());
    }
    outside[result] = output;
  }
  resolve(*node);
  Node* position = position_after(*node);
  for (const Node* repeated : exports.repeated) {
    for (Value* input : repeated->inputs()) {
      if (!outside.contains(input)) {
        outside[input] = input;
      }
    }
    node->graph().copy_node(*repeated, position, outside);
  }
  for (auto at = slice.nodes.rbegin(); at != slice.nodes.rend(); ++at) {
    for (Value* output : (*at)->outputs()) {
      const std::vector<Use> uses = output->uses().vec();
      for (const Use& use : uses) {
        if (!is_within(members, use.user)) {
          use.user->set_input(use.index, outside.at(output));
        }
      }
    }
    (*at)->erase();
  }
}

// Returns the nodes that a gradient flows through, those in nested blocks too.
std::vector<Node*> carriers_of(const std::vector<Node*>& nodes) {
  std::vector<Node*> carriers;
  const auto visit = [&](Node* node) {
    if (autograd_records(*node)) {
      carriers.push_back(node);
    }
  };
  for (Node* node : nodes) {
    visit(node);
    for (const Block* block : node->blocks()) {
      for_each_node(*block, visit);
    }
  }
  return carriers;
}

bool are_alike(const NotDifferentiatedExplanation& a, const NotDifferentiatedExplanation& b) {
  return a.op == b.op && a.reason == b.reason;
}

bool are_alike(const RecordedGradientExplanation& a, const RecordedGradientExplanation& b) { return a.op == b.op; }

// Counts the node in the entry that is `like` its own.
template <class Entry>
void add(const Node& node, Entry like, std::vector<Entry>& entries) {
  like.op = node.kind().toQualString();
  auto found = std::ranges::find_if(entries, [&](const Entry& each) { return are_alike(each, like); });
  if (found == entries.end()) {
    like.node = print_node_line(node);
    like.source = node.location() ? node.location()->file_line_column() : std::string();
    found = entries.insert(found, std::move(like));
  }
  found->nodes += 1;
}

void add_outside(const Node& node, NotDifferentiated reason, GradientExplanation& explanation) {
  NotDifferentiatedExplanation entry;
  entry.reason = reason;
  add(node, std::move(entry), explanation.not_differentiated);
  explanation.outside += 1;
}

template <class Entry>
void sort_by_nodes(std::vector<Entry>& entries) {
  std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) { return a.nodes > b.nodes; });
}

// Returns why the slice stays as it is, or nullopt if a node took its place.
std::optional<NotDifferentiated> differentiate_slice(const DifferentiableSlice& slice, Graph& graph, const RunPass& run) {
  const Exports exports = exports_of(slice);
  const bool any_effects = std::ranges::any_of(slice.nodes, [](const Node* node) { return has_effects(*node); });
  const CutOut cut = cut_out(slice.nodes, exports.results, TensorConstants::kOperands);
  JointGraph joint = differentiate_forward(cut.subgraph, run);
  forget_recorded_gradients(*joint.graph);
  if (joint.signature.outputs.empty()) {
    return NotDifferentiated::kOnlyViews;
  }
  if (joint.signature.inputs.empty()) {
    return NotDifferentiated::kNoGradient;
  }
  const DifferentiableGraphs graphs = split_joint_graph(std::move(joint));
  replace(slice, exports, make_node(cut, graphs, any_effects, graph));
  return std::nullopt;
}

// Takes the last iteration out of loops whose results the caller can see: user code may ask for gradients of these. Values
// of the iterations before are computed in one subgraph then.
bool peel_loops_with_visible_results(Graph& graph, const Roles& roles) {
  std::vector<Node*> loops;
  Visibility visibility;
  for_each_node(graph.body(), [&](Node* node) {
    if (is_differentiable_but_for_results(*node, roles, visibility) &&
        !is_differentiable_block_node(*node, roles, visibility)) {
      loops.push_back(node);
    }
  });
  bool changed = false;
  for (Node* loop : loops) {
    changed |= peel_last_iteration(*loop);
  }
  return changed;
}

}  // namespace

bool differentiate(Graph& graph, size_t min_nodes, GradientExplanation* explanation, const RunPass& run) {
  record_gradients(graph);
  Roles roles(graph);
  bool changed = peel_loops_with_visible_results(graph, roles);
  if (changed) {
    roles = Roles(graph);
  }
  GradientExplanation found;
  const DifferentiableSlices sliced = slice_differentiable(graph, roles, min_nodes);
  for (const auto& [node, reason] : sliced.outside) {
    add_outside(*node, reason, found);
  }
  for (const DifferentiableSlice& slice : sliced.slices) {
    const std::vector<Node*> carriers = carriers_of(slice.nodes);
    std::vector<RecordedGradientExplanation> recorded = found.recorded;
    for (const Node* node : carriers) {
      if (gradient_of(*node).is_recorded) {
        add(*node, RecordedGradientExplanation(), recorded);
      }
    }
    if (const auto reason = differentiate_slice(slice, graph, run)) {
      for (const Node* node : carriers) {
        add_outside(*node, *reason, found);
      }
    } else {
      changed = true;
      found.inside += carriers.size();
      found.recorded = std::move(recorded);
    }
  }
  forget_recorded_gradients(graph);
  if (explanation != nullptr) {
    sort_by_nodes(found.not_differentiated);
    sort_by_nodes(found.recorded);
    *explanation = std::move(found);
  }
  return changed;
}

bool differentiate(Graph& graph) { return differentiate(graph, 2); }

void for_each_differentiable(const Graph& graph, c10::function_ref<void(Node&)> visit) {
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() == kDifferentiableKind) {
      visit(*node);
    }
  });
}

}  // namespace sconce
