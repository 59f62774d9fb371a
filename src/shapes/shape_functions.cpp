#include "shapes/shape_functions.h"

#include "load/compile_op_row.h"
#include "load/function_library.h"
#include "shapes/abstract_evaluator.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/runtime/serialized_shape_function_registry.h>

#include <memory>
#include <mutex>
#include <unordered_map>

namespace sconce {
namespace {

// Returns LibTorch's function for the operator. Compiles that function alone: LibTorch's own accessor compiles all of them,
// which takes 0.15 s.
std::shared_ptr<const Graph> libtorch_shape_function(const torch::jit::Operator& op) {
  static auto& functions = *new FunctionLibrary(torch::jit::GetSerializedShapeFunctions());
  static auto& names = *new auto(torch::jit::GetShapeFunctionMappings());  // a copy, because `find` is not const
  const auto name = names.find(op);
  return name ? functions.graph_of(*name) : nullptr;
}

// The function of the operator's row takes precedence: it exists because LibTorch's is wrong or missing.
std::shared_ptr<const Graph> find_shape_function(const Op& op) {
  if (!op.result.sizes.empty()) {
    return compile_function(op.name, op.result.sizes);
  }
  return op.registered != nullptr ? libtorch_shape_function(*op.registered) : nullptr;
}

// Finds and compiles each operator's function once per process. A graph that is only read may be shared by threads.
std::shared_ptr<const Graph> shape_function(const Op& op) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<const Op*, std::shared_ptr<const Graph>>();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = known.find(&op); found != known.end()) {
      return found->second;
    }
  }
  auto function = find_shape_function(op);
  const std::lock_guard<std::mutex> lock(mutex);
  return known.emplace(&op, std::move(function)).first->second;
}

// Returns the operand of the shape function: sizes for a tensor. Nothing if a rank is not known.
std::optional<AbstractValue> argument_of(const AbstractValue& operand, const c10::TypePtr& type) {
  if (const TensorFacts* facts = operand.as_tensor()) {
    if (!facts->sizes) {
      return std::nullopt;
    }
    AbstractValues sizes;
    for (const Dim dim : *facts->sizes) {
      sizes.push_back(AbstractValue::integer(dim));
    }
    return AbstractValue::sequence(std::move(sizes));
  }
  const AbstractValues* elements = operand.as_sequence();
  if (elements != nullptr && type->kind() == c10::TypeKind::ListType) {
    const c10::TypePtr element_type = type->expectRef<c10::ListType>().getElementType();
    AbstractValues arguments;
    for (const AbstractValue& element : *elements) {
      auto argument = argument_of(element, element_type);
      if (!argument) {
        return std::nullopt;
      }
      arguments.push_back(std::move(*argument));
    }
    return AbstractValue::sequence(std::move(arguments));
  }
  if (elements != nullptr && type->kind() == c10::TypeKind::ClassType) {  // packed weights
    AbstractValues tensors;
    for (const AbstractValue& element : *elements) {
      tensors.push_back(argument_of(element, c10::OptionalType::ofTensor()).value_or(AbstractValue()));
    }
    return AbstractValue::sequence(std::move(tensors));
  }
  const bool accepts_tensor = type->kind() == c10::TypeKind::TensorType || type->isSubtypeOf(*c10::OptionalType::ofTensor());
  if (accepts_tensor && operand.is_unknown()) {
    return std::nullopt;
  }
  return operand;
}

std::optional<std::vector<Dim>> sizes_of(const AbstractValue& value) {
  const AbstractValues* elements = value.as_sequence();
  if (elements == nullptr) {
    return std::nullopt;
  }
  std::vector<Dim> sizes;
  for (const AbstractValue& element : *elements) {
    sizes.push_back(element.as_integer());
  }
  return sizes;
}

}  // namespace

std::optional<std::vector<std::vector<Dim>>> evaluate_shape_function(const Op& op, const AbstractValues& operands,
                                                                     SizeArithmetic& arithmetic) {
  const c10::FunctionSchema& schema = *op.schema;
  const std::shared_ptr<const Graph> function = shape_function(op);
  if (function == nullptr || function->inputs().size() > operands.size()) {
    return std::nullopt;
  }
  AbstractValues arguments;  // trailing arguments that the function does not have are left out
  for (size_t i = 0; i < function->inputs().size(); ++i) {
    auto argument = argument_of(operands[i], schema.arguments()[i].type());
    // Sizes that a row's function returns may be those of the other operands.
    if (!argument && op.result.sizes.empty()) {
      return std::nullopt;
    }
    arguments.push_back(argument ? std::move(*argument) : AbstractValue());
  }
  AbstractEvaluator evaluator(*function, arithmetic, AbstractEvaluator::Loops::kConcreteTrips);
  if (!evaluator.run(std::move(arguments))) {
    return std::nullopt;
  }
  // Sizes; a function with several results returns a tuple of them, or has several outputs.
  std::vector<AbstractValue> returned;
  for (const Value* output : function->outputs()) {
    returned.push_back(evaluator.snapshot(*output));
  }
  if (function->outputs().size() == 1 && function->outputs()[0]->type()->kind() == c10::TypeKind::TupleType &&
      returned[0].as_sequence() != nullptr) {
    returned = AbstractValues(*returned[0].as_sequence());
  }
  std::vector<std::vector<Dim>> sizes;
  for (const AbstractValue& value : returned) {
    auto known_sizes = sizes_of(value);
    if (!known_sizes) {
      return std::nullopt;
    }
    sizes.push_back(std::move(*known_sizes));
  }
  return sizes.size() <= schema.returns().size() ? std::optional(std::move(sizes)) : std::nullopt;
}

}  // namespace sconce
