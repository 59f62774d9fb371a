#include "tests/support/graph_shrinker.h"

#include "ir/verify/verify.h"
#include "passes/required/eliminate_dead_nodes.h"

#include <optional>
#include <vector>

namespace sconce::testing {
namespace {

std::vector<Node*> nodes_of(const Graph& graph) {
  std::vector<Node*> nodes;
  for_each_node(graph.body(), [&](Node* node) { nodes.push_back(node); });
  return nodes;
}

// Values that are defined before the node in its own block or an enclosing one, the nearest first.
std::vector<Value*> values_before(const Node& node) {
  std::vector<Value*> values;
  const Node* position = &node;
  for (Block* block = node.owning_block(); block != nullptr;) {
    for (Node* earlier = position->previous(); earlier != nullptr; earlier = earlier->previous()) {
      values.insert(values.end(), earlier->outputs().begin(), earlier->outputs().end());
    }
    values.insert(values.end(), block->params().begin(), block->params().end());
    position = block->owner();
    block = position == nullptr ? nullptr : position->owning_block();
  }
  return values;
}

// Takes the node out; the `alternative`-th earlier value of its type stands for each of its results. False: there is none.
bool replace_node(Node& node, size_t alternative) {
  const std::vector<Value*> earlier = values_before(node);
  for (Value* output : node.outputs()) {
    if (!output->has_uses()) {
      continue;
    }
    size_t left = alternative;
    Value* stand_in = nullptr;
    for (Value* value : earlier) {
      if (*value->type() == *output->type() && left-- == 0) {
        stand_in = value;
        break;
      }
    }
    if (stand_in == nullptr) {
      return false;
    }
    output->replace_all_uses_with(stand_in);
  }
  node.erase();
  return true;
}

bool keep_branch(Node& node, size_t branch) {
  if (node.kind() != prim::If) {
    return false;
  }
  ValueMap values;  // the branch uses what stands before it
  for (Value* value : values_before(node)) {
    values[value] = value;
  }
  const std::vector<Value*> results = node.graph().copy_nodes(*node.block(branch), &node, values);
  for (size_t i = 0; i < results.size(); ++i) {
    node.output(i)->replace_all_uses_with(results[i]);
  }
  node.erase();
  return true;
}

bool remove_output(Graph& graph, size_t index) {
  if (index >= graph.outputs().size() || graph.outputs().size() == 1) {
    return false;
  }
  graph.body().remove_return(index);
  return true;
}

class Shrinker {
 public:
  Shrinker(const Graph& graph, const StillFails& still_fails, int max_tries)
      : best_(graph.clone()), still_fails_(still_fails), tries_left_(max_tries) {}

  std::unique_ptr<Graph> run() {
    attempt([](Graph& graph) { return eliminate_dead_nodes(graph); });
    while (tries_left_ > 0 && shrink_once()) {
    }
    return std::move(best_);
  }

 private:
  // One round over everything; whether something could go.
  bool shrink_once() {
    bool smaller = false;
    for (size_t i = best_->outputs().size(); i-- > 0;) {
      smaller |= attempt([&](Graph& graph) { return remove_output(graph, i); });
    }
    constexpr size_t kAlternatives = 4;
    for (size_t i = best_->node_count(); i-- > 0 && tries_left_ > 0;) {
      bool gone = false;
      for (size_t branch = 0; branch < 2 && !gone; ++branch) {
        gone = attempt_on_node(i, [&](Node& node) { return keep_branch(node, branch); });
      }
      for (size_t alternative = 0; alternative < kAlternatives && !gone; ++alternative) {
        gone = attempt_on_node(i, [&](Node& node) { return replace_node(node, alternative); });
      }
      smaller |= gone;
    }
    return smaller;
  }

  bool attempt_on_node(size_t index, const std::function<bool(Node&)>& change) {
    return attempt([&](Graph& graph) {
      const std::vector<Node*> nodes = nodes_of(graph);
      return index < nodes.size() && change(*nodes[index]);
    });
  }

  bool attempt(const std::function<bool(Graph&)>& change) {
    std::unique_ptr<Graph> candidate = best_->clone();
    if (!change(*candidate) || !find_violations(*candidate).empty()) {
      return false;
    }
    --tries_left_;
    if (!still_fails_(*candidate)) {
      return false;
    }
    best_ = std::move(candidate);
    return true;
  }

  std::unique_ptr<Graph> best_;
  const StillFails& still_fails_;
  int tries_left_;
};

}  // namespace

std::unique_ptr<Graph> shrink(const Graph& graph, const StillFails& still_fails, int max_tries) {
  return Shrinker(graph, still_fails, max_tries).run();
}

}  // namespace sconce::testing
