// Compiles the TorchScript texts of operator rows (ops/op_row.h).
#pragma once

#include "ir/graph.h"

#include <memory>
#include <string_view>

namespace sconce {

// Returns the operator's body as a graph from its arguments to its result. Requires that the row has a body. A text that
// does not compile is an internal error that names the operator.
std::unique_ptr<Graph> compile_body(const Op& op);

// Returns the operator's gradients as a graph from its arguments, `result` and `grad` to a tuple: per Tensor argument its
// gradient, or None. Requires that the row has a backward text and no forward text.
std::unique_ptr<Graph> compile_backward(const Op& op);

// Returns the graph of the only function of TorchScript source, calls not inlined. `op` is named in errors.
std::unique_ptr<Graph> compile_function(std::string_view op, std::string_view source);

}  // namespace sconce
