// The text form of a graph: TorchScript's own, as `torch::jit::parseIR` reads it, plus a few extensions for what that
// form leaves out (constants it prints as `<Tensor>`). `parse.h` reads everything that is printed here:
// print → parse → print is a fixed point. A node without results is printed without "=", which LibTorch prints in front
// of it but cannot read.
#pragma once

#include "ir/graph.h"

#include <string>
#include <vector>

namespace sconce {

struct PrintOptions {
  // `# model.py:12:8` behind each node.
  bool locations = true;
  // Constants with no literal form (large tensors, objects) are printed as `<Tensor:0>` with their index in this list,
  // to which they are appended; without a list, as `<Tensor>`, which cannot be parsed back.
  std::vector<c10::IValue>* constants = nullptr;
};

std::string print(const Graph& graph, const PrintOptions& options = {});

// One line: the node without its blocks and without a source comment.
std::string print_node_line(const Node& node);

// "%x.1" or "%5".
std::string print_value_name(const Value& value);

// The type as the text form has it, tensors with their facts.
std::string print_type(const Value& value);

}  // namespace sconce
