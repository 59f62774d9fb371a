#include "load/compile_op_row.h"

#include "base/assert.h"
#include "ir/constant_operands.h"
#include "load/function_library.h"
#include "ops/row_functions.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace sconce {
namespace {

// The names that a text may use, in order: "self: Tensor".
using Parameters = std::vector<std::string>;

std::string declaration(const std::string& name, const c10::Type& type) { return name + ": " + type.annotation_str(); }

Parameters arguments_of(const c10::FunctionSchema& schema) {
  Parameters parameters;
  for (const c10::Argument& argument : schema.arguments()) {
    parameters.push_back(declaration(argument.name(), *argument.type()));
  }
  return parameters;
}

// Appends one parameter per result: `name`, or name0, name1, … if the operator has several.
void append_per_result(Parameters& parameters, const c10::FunctionSchema& schema, const std::string& name) {
  const auto& returns = schema.returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    parameters.push_back(declaration(returns.size() == 1 ? name : name + std::to_string(i), *returns[i].type()));
  }
}

// Returns whether the text consists of statements, not of one expression: it has the keyword `return`.
bool is_of_statements(std::string_view text) {
  constexpr std::string_view kReturn = "return";
  const auto is_part_of_name = [&](size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (size_t at = text.find(kReturn); at != std::string_view::npos; at = text.find(kReturn, at + 1)) {
    if ((at == 0 || !is_part_of_name(at - 1)) && !is_part_of_name(at + kReturn.size())) {
      return true;
    }
  }
  return false;
}

std::unique_ptr<Graph> compile_text(const Op& op, std::string_view text, const Parameters& parameters) {
  const size_t first = text.find_first_not_of('\n');
  text = text.substr(first, text.find_last_not_of('\n') + 1 - first);
  std::string source = "def row(";
  for (size_t i = 0; i < parameters.size(); ++i) {
    source += (i == 0 ? "" : ", ") + parameters[i];
  }
  source += "):\n    ";
  if (!is_of_statements(text)) {
    source += "return ";
  }
  for (const char character : text) {
    source += character;
    if (character == '\n') {
      source += "    ";
    }
  }
  return compile_function(op.name, source + "\n");
}

// Returns whether the overload takes names of dimensions: strings in arguments such as `dim` and `start_dim`.
bool names_dimensions(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    const bool is_dimension = argument.name().find("dim") != std::string::npos || argument.name() == "names";
    return is_dimension && argument.type()->annotation_str().find("str") != std::string::npos;
  });
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.type()->kind() == c10::TypeKind::TensorType || *result.type() == *c10::ListType::ofTensors();
  });
}

// Returns the types of the values that a forward text saves: what its tuple has after the operator's results.
std::vector<c10::TypePtr> saved_types(const Op& op, const Graph& forward) {
  const auto tuple = forward.outputs().at(0)->type()->cast<c10::TupleType>();
  const size_t results = op.schema->returns().size();
  SCONCE_ASSERT(tuple != nullptr && tuple->elements().size() >= results, "the forward text of ", op.name,
                " does not return a tuple that begins with the results");
  return {tuple->elements().begin() + static_cast<std::ptrdiff_t>(results), tuple->elements().end()};
}

}  // namespace

std::unique_ptr<Graph> compile_function(std::string_view op, std::string_view source) {
  static auto& functions = *new FunctionLibrary(kRowFunctions);
  return functions.compile("the row of " + std::string(op), source);
}

std::unique_ptr<Graph> compile_body(const Op& op) {
  SCONCE_ASSERT(!op.body.empty(), op.name, " has no body");
  return compile_text(op, op.body, arguments_of(*op.schema));
}

OpGradient compile_gradient(const Op& op) {
  SCONCE_ASSERT(!op.backward.empty() || !op.forward.empty(), op.name, " has no text of its gradient");
  OpGradient gradient;
  Parameters parameters = arguments_of(*op.schema);
  if (!op.differentiable_if.empty()) {
    gradient.condition = compile_text(op, op.differentiable_if, parameters);
  }
  if (!op.forward.empty()) {
    gradient.forward = compile_text(op, op.forward, parameters);
  }
  if (op.backward.empty()) {
    return gradient;
  }
  append_per_result(parameters, *op.schema, "result");
  if (gradient.forward != nullptr) {
    for (const c10::TypePtr& type : saved_types(op, *gradient.forward)) {
      parameters.push_back(declaration("saved_" + std::to_string(gradient.saved++), *type));
    }
  }
  append_per_result(parameters, *op.schema, "grad");
  if (op.schema->returns().size() > 1) {
    parameters.emplace_back("defined: List[bool]");
  }
  parameters.emplace_back("needs: List[bool]");
  parameters.emplace_back("records: bool");
  gradient.backward = compile_text(op, op.backward, parameters);
  return gradient;
}

void append_all_defined(std::vector<c10::IValue>& inputs, size_t results) {
  if (results > 1) {
    c10::List<bool> defined;
    defined.resize(results, true);
    inputs.emplace_back(defined);
  }
}

bool has_gradient_for(const OpGradient& gradient, size_t index) {
  if (gradient.backward == nullptr) {
    return true;
  }
  const Node& tuple = *gradient.backward->outputs()[0]->node();
  return tuple.opcode() == Opcode::kTupleConstruct && index < tuple.inputs().size() && !is_none(*tuple.input(index));
}

const OpGradient* gradient_of(const Op& op) {
  const bool has_text = !op.backward.empty() || !op.forward.empty();
  if (op.canonical != nullptr && !has_text) {
    return gradient_of(*op.canonical);
  }
  if (!has_text || op.schema->is_mutable() || !returns_tensors(*op.schema) || names_dimensions(*op.schema)) {
    return nullptr;
  }
  static std::mutex mutex;
  static auto* const gradients = new std::unordered_map<const Op*, OpGradient>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto found = gradients->find(&op);
  if (found == gradients->end()) {
    found = gradients->emplace(&op, compile_gradient(op)).first;
  }
  return &found->second;
}

}  // namespace sconce
