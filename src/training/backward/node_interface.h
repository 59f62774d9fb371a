// The interface that LibTorch's nodes call, in place of their own formulas, while a backward is recorded.
#pragma once

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <memory>

namespace sconce {

// The interface calls the nodes' formulas, so that a tracer sees their operators. Where a formula raises, it returns
// undefined gradients and sets `has_raised`: a node takes back what it has saved only if no error passes through it.
std::unique_ptr<torch::dynamo::autograd::PyCompilerInterface> make_node_interface(bool& has_raised);

}  // namespace sconce
