// The TorchScript expressions of the op table → graphs.
#pragma once

#include "ir/graph.h"
#include "ops/op_table.h"

#include <memory>

namespace sconce {

// graph(arguments of the schema) -> row.body. Requires: the row has a body. Compiled by LibTorch's frontend at each call
// (~0.5 ms): callers keep the result. A malformed text is an internal error: the table is ours.
std::unique_ptr<Graph> compile_body(const OpRow& row);

// graph(arguments of the schema, result, grad) -> the gradient of the argument that `grad` names. As above.
std::unique_ptr<Graph> compile_grad(const OpRow& row, const GradText& grad);

// The function that the source defines, of whatever name. `op`: whose row it stands in, for the error. As above.
std::unique_ptr<Graph> compile_function(std::string_view op, std::string_view source);

}  // namespace sconce
