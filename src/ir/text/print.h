// Prints graphs in TorchScript's text form, as `torch::jit::parseIR` reads it, with a few extensions for constants that this
// form prints as `<Tensor>`. parse.h reads everything that is printed here: print → parse → print is a fixed point. A node
// without results is printed without the "=" that LibTorch prints before it, but cannot parse.
#pragma once

#include "ir/graph.h"

#include <string>
#include <vector>

namespace sconce {

struct PrintOptions {
  // Prints `# model.py:12:8` after each node.
  bool locations = true;
  // Constants without a literal form (large tensors, objects) are appended to this list and printed as `<Tensor:0>`, with
  // their index. Without a list they are printed as `<Tensor>`, which cannot be parsed.
  std::vector<c10::IValue>* constants = nullptr;
};

std::string print(const Graph& graph, const PrintOptions& options = {});

// Returns one line: the node without its blocks and without a source comment.
std::string print_node_line(const Node& node);

// Returns "%x.1" or "%5".
std::string print_value_name(const Value& value);

// Returns the value's type as the text form has it, with facts.
std::string print_type(const Value& value);

}  // namespace sconce
