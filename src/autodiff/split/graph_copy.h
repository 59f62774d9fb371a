// GraphCopy: a new graph of nodes of another one.
#pragma once

#include "analysis/nested_uses.h"
#include "autodiff/joint/build_nodes.h"
#include "ir/graph.h"

#include <memory>
#include <utility>

namespace sconce {

class GraphCopy {
 public:
  // Adds an input that stands for the value.
  void add_input(const Value& value) {
    Value* input = graph_->add_input(value.name(), value.type());
    if (value.facts() != nullptr) {
      input->set_facts(*value.facts());
    }
    copies_[&value] = input;
  }
  // Requires that the operands are copied, or constants.
  void add_node(const Node& node) {
    for_each_operand(node, [this](Value* operand) { add_constant(*operand); });
    graph_->copy_node(node, graph_->body().return_node(), copies_);
  }
  void add_output(const Value& value) {
    add_constant(value);
    graph_->add_output(copies_.at(&value));
  }
  // Adds an output that is a copy of the tensor, with memory of its own.
  void add_cloned_output(const Value& tensor) {
    graph_->add_output(insert_clone(copies_.at(&tensor), graph_->body().return_node()));
  }
  bool has(const Value& value) const { return copies_.contains(&value); }
  std::unique_ptr<Graph> take() { return std::move(graph_); }

 private:
  void add_constant(const Value& value) {
    if (value.constant() != nullptr && !copies_.contains(&value)) {
      graph_->copy_node(*value.node(), graph_->body().return_node(), copies_);
    }
  }

  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  ValueMap copies_;
};

}  // namespace sconce
