#include "analysis/cut_out.h"

#include "analysis/nested_uses.h"

#include <algorithm>

namespace sconce {
namespace {

class Cutting {
 public:
  explicit Cutting(TensorConstants tensors) : cut_{std::make_shared<Graph>(), {}}, tensors_(tensors) {}

  // Adds an input for a value from outside, or a copy of a constant.
  void enter(Value* value) {
    if (copies_.contains(value)) {
      return;
    }
    Graph& subgraph = *cut_.subgraph;
    const c10::IValue* constant = value->constant();
    if (constant != nullptr && !(tensors_ == TensorConstants::kOperands && constant->isTensor())) {
      subgraph.copy_node(*value->node(), subgraph.body().return_node(), copies_);
      return;
    }
    add_input(*value);
    cut_.operands.push_back(value);
  }

  void add_input(const Value& value) {
    Value* input = cut_.subgraph->add_input(value.name(), value.type());
    if (value.facts() != nullptr) {
      input->set_facts(*value.facts());
    }
    copies_[&value] = input;
  }

  void copy(const Node& node) {
    for_each_operand(node, [this](Value* operand) { enter(operand); });
    cut_.subgraph->copy_node(node, cut_.subgraph->body().return_node(), copies_);
  }

  void add_output(Value* value) {
    enter(value);
    cut_.subgraph->add_output(copies_.at(value));
  }

  CutOut take() { return std::move(cut_); }

 private:
  CutOut cut_;
  const TensorConstants tensors_;
  ValueMap copies_;
};

}  // namespace

CutOut cut_out(c10::ArrayRef<Node*> nodes, c10::ArrayRef<Value*> results, TensorConstants tensors) {
  Cutting cutting(tensors);
  for (const Node* node : nodes) {
    cutting.copy(*node);
  }
  for (Value* result : results) {
    cutting.add_output(result);
  }
  return cutting.take();
}

CutOut cut_out(const Block& block, c10::ArrayRef<Value*> more_results, TensorConstants tensors) {
  Cutting cutting(tensors);
  for (const Value* param : block.params()) {
    cutting.add_input(*param);
  }
  for (const Node* node : block.nodes()) {
    cutting.copy(*node);
  }
  for (Value* result : block.returns()) {
    cutting.add_output(result);
  }
  for (Value* result : more_results) {
    cutting.add_output(result);
  }
  return cutting.take();
}

Node& replace_by_subgraph(c10::ArrayRef<Node*> nodes, c10::ArrayRef<Value*> results, const CutOut& cut, c10::Symbol kind) {
  Node& made = *nodes.front()->graph().create(kind, cut.operands, results.size());
  made.set_attribute(attr::kSubgraph, cut.subgraph);
  made.set_location(nodes.front()->location());
  made.insert_after(nodes.back());
  for (size_t i = 0; i < results.size(); ++i) {
    Value* result = made.output(i);
    result->set_name(results[i]->name());
    result->set_type(results[i]->type());
    if (results[i]->facts() != nullptr) {
      result->set_facts(*results[i]->facts());
    }
    results[i]->replace_all_uses_with(result);
  }
  std::for_each(nodes.rbegin(), nodes.rend(), [](Node* node) { node->erase(); });
  return made;
}

}  // namespace sconce
