// Builds a graph node by node, reads one from text, walks it, and runs both.
#include <sconce/graph_executor.h>
#include <sconce/pass.h>

#include <ATen/ATen.h>

#include <iostream>
#include <memory>
#include <stdexcept>

namespace {

using sconce::Block;
using sconce::Graph;
using sconce::Node;
using sconce::Value;

// Inserts a call of an operator before `position`, and finds the overload that takes these inputs.
Value* call(Graph& graph, c10::Symbol kind, c10::ArrayRef<Value*> inputs, Node* position) {
  Node* node = graph.create(kind, inputs)->insert_before(position);
  if (!sconce::resolve(*node)) {
    throw std::runtime_error(sconce::explain_no_match(*node));
  }
  return node->output();
}

// graph(%x, %is_small): relu(x) * 0.5 if is_small, else x + x.
std::unique_ptr<Graph> build() {
  auto graph = std::make_unique<Graph>();
  Value* x = graph->add_input("x", c10::TensorType::get());
  Value* is_small = graph->add_input("is_small", c10::BoolType::get());

  // What stands at the end of a block is inserted before its return node.
  Node* branch = graph->create(sconce::prim::If, {is_small})->insert_before(graph->body().return_node());
  Block* then = branch->add_block();
  Value* half = graph->insert_constant(0.5, then->return_node());
  Value* rectified = call(*graph, sconce::aten::relu, {x}, then->return_node());
  then->add_return(call(*graph, sconce::aten::mul, {rectified, half}, then->return_node()));
  Block* otherwise = branch->add_block();
  Value* one = graph->insert_constant(1, otherwise->return_node());
  otherwise->add_return(call(*graph, sconce::aten::add, {x, x, one}, otherwise->return_node()));

  graph->add_output(branch->output()->set_name("y"));
  sconce::verify(*graph, "build");
  return graph;
}

}  // namespace

int main() {
  std::unique_ptr<Graph> graph = build();
  std::cout << sconce::print(*graph);

  size_t operators = 0;
  sconce::for_each_node(graph->body(), [&](Node* node) { operators += node->schema() != nullptr ? 1 : 0; });
  std::cout << operators << " operators\n";

  sconce::GraphExecutor executor(std::move(graph), "built", sconce::Options());
  for (const bool is_small : {true, false}) {
    torch::jit::Stack stack = {at::full({2}, 3.0), is_small};
    executor.run(stack);
    std::cout << stack.front().toTensor()[0].item<double>() << "\n";
  }

  auto parsed = sconce::parse(R"(
graph(%a : Tensor, %b : Tensor):
  %c : Tensor = aten::matmul(%a, %b)
  %d : Tensor = aten::tanh(%c)
  return (%d))");
  sconce::GraphExecutor second(std::move(parsed), "parsed", sconce::Options().compile(sconce::CompileMode::kBlocking));
  torch::jit::Stack stack = {at::eye(3), at::zeros({3, 3})};
  second.run(stack);
  std::cout << stack.front().toTensor().sum().item<double>() << "\n";
}
