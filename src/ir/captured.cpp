#include "ir/captured.h"

#include <memory>
#include <vector>

namespace sconce {

bool dissolve_captured_nodes(Graph& graph) {
  std::vector<Node*> captured;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->opcode() == Opcode::kCaptured) {
      captured.push_back(node);
    }
  });
  for (Node* node : captured) {
    const Graph& subgraph = *node->attribute_as<std::shared_ptr<Graph>>(attr::kSubgraph);
    ValueMap values;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      values[subgraph.inputs()[i]] = node->input(i);
    }
    const std::vector<Value*> results = graph.copy_nodes(subgraph.body(), node, values);
    for (size_t i = 0; i < results.size(); ++i) {
      node->output(i)->replace_all_uses_with(results[i]);
    }
    node->erase();
  }
  return !captured.empty();
}

}  // namespace sconce
