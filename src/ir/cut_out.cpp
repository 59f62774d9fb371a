#include "ir/cut_out.h"

namespace sconce {

CutOut cut_out(c10::ArrayRef<Node*> nodes, c10::ArrayRef<Value*> results, TensorConstants tensors) {
  CutOut cut{std::make_shared<Graph>(), {}};
  Graph& subgraph = *cut.subgraph;
  ValueMap copies;
  const auto enter = [&](Value* value) {
    if (copies.contains(value)) {
      return;
    }
    const c10::IValue* constant = value->constant();
    if (constant != nullptr && !(tensors == TensorConstants::kOperands && constant->isTensor())) {
      subgraph.copy_node(*value->node(), subgraph.body().return_node(), copies);
      return;
    }
    Value* input = subgraph.add_input(value->name(), value->type());
    if (value->facts() != nullptr) {
      input->set_facts(*value->facts());
    }
    copies[value] = input;
    cut.operands.push_back(value);
  };
  for (const Node* node : nodes) {
    for (Value* input : node->inputs()) {
      enter(input);
    }
    subgraph.copy_node(*node, subgraph.body().return_node(), copies);
  }
  for (Value* result : results) {
    subgraph.add_output(copies.at(result));
  }
  return cut;
}

}  // namespace sconce
