#include "ops/in_place.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>

namespace sconce {
namespace {

bool is_marked_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}
bool has_alias_mark(const c10::Argument& argument) { return argument.alias_info() != nullptr; }

// (Tensor(a!) self, …) -> Tensor(a!), without another mark.
bool writes_and_returns_self_alone(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return !arguments.empty() && is_marked_written(arguments[0]) && arguments[0].type()->kind() == c10::TypeKind::TensorType &&
         std::none_of(arguments.begin() + 1, arguments.end(), has_alias_mark) && schema.returns().size() == 1 &&
         is_marked_written(schema.returns()[0]);
}

bool returns_new_tensor_from_same_arguments(const Op& variant, const c10::FunctionSchema& schema) {
  const c10::FunctionSchema& candidate = *variant.schema;
  return !candidate.is_mutable() && !variant.results_may_share_memory && candidate.returns().size() == 1 &&
         !has_alias_mark(candidate.returns()[0]) &&
         std::equal(candidate.arguments().begin(), candidate.arguments().end(), schema.arguments().begin(),
                    schema.arguments().end(), [](const c10::Argument& a, const c10::Argument& b) {
                      return a.name() == b.name() && *a.type() == *b.type() && !has_alias_mark(a);
                    });
}

}  // namespace

const Op* find_out_of_place(const Op& op) {
  const c10::FunctionSchema& schema = *op.schema;
  if (!schema.name().ends_with('_') || !writes_and_returns_self_alone(schema)) {
    return nullptr;
  }
  const auto registered =
      torch::jit::findOperatorFor({schema.name().substr(0, schema.name().size() - 1), schema.overload_name()});
  const Op* variant = registered == nullptr ? nullptr : &op_of(registered->schema());
  return variant != nullptr && returns_new_tensor_from_same_arguments(*variant, schema) ? variant : nullptr;
}

}  // namespace sconce
