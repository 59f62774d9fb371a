#include "load/compile_op_row.h"

#include "base/assert.h"
#include "load/convert.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <sstream>

namespace sconce {
namespace {

std::unique_ptr<Graph> compile_expression(const Op& op, std::string_view expression, bool with_result_and_grad) {
  std::ostringstream source;
  source << "def row(";
  const char* separator = "";
  for (const c10::Argument& argument : op.schema->arguments()) {
    source << separator << argument.name() << ": " << argument.type()->annotation_str();
    separator = ", ";
  }
  if (with_result_and_grad) {
    source << separator << "result: Tensor, grad: Tensor";
  }
  source << "):\n    return " << expression << "\n";

  return compile_function(op.name, source.str());
}

}  // namespace

std::unique_ptr<Graph> compile_function(std::string_view op, std::string_view source) {
  torch::jit::CompilationUnit unit;
  try {
    unit.define(std::nullopt, std::string(source), torch::jit::nativeResolver(), nullptr);
  } catch (const std::exception& error) {
    SCONCE_ASSERT(false, "the row of ", op, " does not compile: ", error.what());
  }
  auto graph = convert(*torch::jit::toGraphFunction(*unit.get_functions().front()).graph());
  SCONCE_ASSERT(graph, "the row of ", op, ": ", graph ? "" : graph.refusal().reason);
  return std::move(*graph);
}

std::unique_ptr<Graph> compile_body(const Op& op) {
  SCONCE_ASSERT(!op.body.empty(), op.name, " has no body");
  return compile_expression(op, op.body, /*with_result_and_grad=*/false);
}

std::unique_ptr<Graph> compile_backward(const Op& op) {
  SCONCE_ASSERT(!op.backward.empty() && op.forward.empty(), op.name, " has no backward from its result alone");
  return compile_expression(op, op.backward, /*with_result_and_grad=*/true);
}

}  // namespace sconce
