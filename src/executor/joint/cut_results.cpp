#include "executor/joint/cut_results.h"

#include "analysis/effects.h"
#include "analysis/memory/memory_source.h"

#include <unordered_set>

namespace sconce {
namespace {

bool writes(const Node& node, const Value& base) {
  for (size_t i = 0; node.schema() != nullptr && i < node.inputs().size(); ++i) {
    if (may_write_operand(node, i) && &base_of_memory(*node.input(i)) == &base) {
      return true;
    }
  }
  return false;
}

// Lets the nodes that run after the last write of the result read the input. Returns false if one of them reads the memory
// through another value that was made before.
bool redirect_readers(Graph& graph, Value& result, Value* input) {
  const Value& base = base_of_memory(result);
  const Node* last_write = nullptr;
  for (const Node* node : graph.body().nodes()) {
    last_write = writes(*node, base) ? node : last_write;
  }
  std::unordered_set<const Value*> made_before;
  bool is_after = last_write == nullptr;
  for (Node* node : graph.body().nodes()) {
    for (size_t i = 0; is_after && i < node->inputs().size(); ++i) {
      if (node->input(i) == &result) {
        node->set_input(i, input);
      } else if (made_before.contains(node->input(i))) {
        return false;
      }
    }
    if (!is_after) {
      for (const Value* output : node->outputs()) {
        if (output != &result && &base_of_memory(*output) == &base) {
          made_before.insert(output);
        }
      }
    }
    is_after = is_after || node == last_write;
  }
  return true;
}

}  // namespace

std::unique_ptr<Graph> cut_at_results(const Graph& forward, const std::vector<size_t>& cut) {
  std::unique_ptr<Graph> graph = forward.clone();
  for (const size_t position : cut) {
    Value& result = *graph->outputs()[position];
    Value* input = graph->add_input(result.name(), result.type());
    if (!redirect_readers(*graph, result, input)) {
      return nullptr;
    }
  }
  return graph;
}

}  // namespace sconce
