#include "executor/joint/cut_results.h"

#include "analysis/effects.h"

#include <algorithm>
#include <unordered_set>

namespace sconce {
namespace {

// Returns whether the node's results are new tensors: views are single results, or lists, or marked in the schema.
bool makes_new_tensors(const Node& node) {
  if (node.outputs().size() == 1) {
    return produces_new_tensor(node);
  }
  const auto& returns = node.schema()->returns();
  return node.op().dispatched && std::all_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
           return result.alias_info() == nullptr && result.type()->kind() == c10::TypeKind::TensorType;
         });
}

// Returns the value whose memory the value may have: an input, or one that an operator has made.
const Value& base_of(const Value& value) {
  const Value* base = &value;
  for (;;) {
    const Node& maker = *base->node();
    const bool may_alias = maker.opcode() == Opcode::kListUnpack || maker.opcode() == Opcode::kListConstruct ||
                           (maker.schema() != nullptr && !makes_new_tensors(maker));
    if (!may_alias || maker.inputs().empty()) {
      return *base;
    }
    base = maker.input(0);
  }
}

bool writes(const Node& node, const Value& base) {
  for (size_t i = 0; node.schema() != nullptr && i < node.inputs().size(); ++i) {
    if (may_write_operand(node, i) && &base_of(*node.input(i)) == &base) {
      return true;
    }
  }
  return false;
}

// Lets the nodes that run after the last write of the result read the input. Returns false if one of them reads the memory
// through another value that was made before.
bool redirect_readers(Graph& graph, Value& result, Value* input) {
  const Value& base = base_of(result);
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
        if (output != &result && &base_of(*output) == &base) {
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
