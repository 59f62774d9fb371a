// What LibTorch's nodes call in place of their own formulas while a backward is recorded.
#pragma once

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <memory>

namespace sconce {

// The interface calls the nodes' formulas, so that a recorder sees their operators.
std::unique_ptr<torch::dynamo::autograd::PyCompilerInterface> make_node_interface();

}  // namespace sconce
