#include "load/row_text.h"

#include "base/assert.h"
#include "load/convert.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <sstream>

namespace sconce {
namespace {

std::unique_ptr<Graph> compile_expression(std::string_view schema_text, std::string_view expression,
                                          bool with_result_and_grad) {
  const c10::FunctionSchema schema = torch::jit::parseSchema(std::string(schema_text));
  std::ostringstream source;
  source << "def row(";
  const char* separator = "";
  for (const c10::Argument& argument : schema.arguments()) {
    source << separator << argument.name() << ": " << argument.type()->annotation_str();
    separator = ", ";
  }
  if (with_result_and_grad) {
    source << separator << "result: Tensor, grad: Tensor";
  }
  source << "):\n    return " << expression << "\n";

  return compile_function(schema_text, source.str());
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
  SCONCE_ASSERT(graph, "the row of ", op, ": ", graph.refusal().reason);
  return std::move(*graph);
}

std::unique_ptr<Graph> compile_body(const OpRow& row) {
  SCONCE_ASSERT(!row.body.empty(), row.schema);
  return compile_expression(row.schema, row.body, false);
}

std::unique_ptr<Graph> compile_grad(const OpRow& row, const GradText& grad) {
  return compile_expression(row.schema, grad.text, true);
}

}  // namespace sconce
