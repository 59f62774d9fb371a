#include "shapes/facts_of_numbers.h"

#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>
#include <c10/core/DefaultDtype.h>

#include <vector>

namespace sconce {
namespace {

std::optional<c10::ScalarType> dtype_of_numbers(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::IntType: return c10::kLong;
    case c10::TypeKind::BoolType: return c10::kBool;
    case c10::TypeKind::FloatType: return c10::get_default_dtype_as_scalartype();
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<TensorFacts> facts_of_numbers(const Node& node, const AbstractValues& operands) {
  const auto argument = node.op().result.sizes_by_structure ? node.op().argument_index("dtype") : std::nullopt;
  if (!argument || *argument >= operands.size() || node.input(0)->type()->kind() != c10::TypeKind::ListType) {
    return std::nullopt;
  }
  c10::TypePtr type = node.input(0)->type();
  std::vector<Dim> sizes;
  while (const auto list = type->cast<c10::ListType>()) {
    sizes.push_back(Dim::unknown());
    type = list->getElementType();
  }
  TensorFacts facts;
  if (const auto given = operands[*argument].as_known_integer()) {
    facts.dtype = static_cast<c10::ScalarType>(*given);
  } else if (is_none(*node.input(*argument))) {
    facts.dtype = dtype_of_numbers(*type);
  }
  if (!facts.dtype) {
    return std::nullopt;
  }
  facts.sizes = std::move(sizes);
  facts.layout = c10::kStrided;
  return facts;
}

}  // namespace sconce
