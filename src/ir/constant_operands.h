// Questions about types and constant operands that analyses and passes share.
#pragma once

#include "ir/graph.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>

namespace sconce {

// Returns whether a prim::Constant can hold values of the type: tensors, numbers, strings, None and devices, and lists and
// tuples of all these but tensors.
inline bool can_be_constant(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::ListType:
    case c10::TypeKind::TupleType:
    case c10::TypeKind::OptionalType: {
      return std::ranges::all_of(type->containedTypes(), [](const c10::TypePtr& inner) {
        return inner->kind() != c10::TypeKind::TensorType && can_be_constant(inner);
      });
    }
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::TensorType: return true;
    default: return false;
  }
}

// Returns whether all operands but the first are constants.
inline bool has_constant_arguments(const Node& node) {
  const auto inputs = node.inputs();
  return std::all_of(inputs.begin() + 1, inputs.end(), [](const Value* input) { return input->constant() != nullptr; });
}

inline bool is_tensor(const Value& value) { return value.type()->kind() == c10::TypeKind::TensorType; }

// Returns nothing if the facts do not tell.
inline std::optional<c10::ScalarType> known_dtype(const Value& value) {
  return value.facts() != nullptr ? value.facts()->dtype : std::nullopt;
}

// Returns whether the value is None in every run. The constant None may have the type of an optional.
inline bool is_none(const Value& value) {
  const auto* constant = value.constant();
  return value.type()->kind() == c10::TypeKind::NoneType || (constant != nullptr && constant->isNone());
}

inline bool is_constant_int(const Value& value, int64_t wanted) {
  const auto* constant = value.constant();
  return constant && constant->isInt() && constant->toInt() == wanted;
}

inline std::optional<bool> constant_bool(const Value& value) {
  const auto* constant = value.constant();
  return constant && constant->isBool() ? std::optional(constant->toBool()) : std::nullopt;
}

// Returns the position that an index denotes among `size` elements; a negative index counts from the end. Nothing if it is
// out of range.
inline std::optional<size_t> position_among(size_t size, int64_t index) {
  const auto count = static_cast<int64_t>(size);
  const int64_t at = index + (index < 0 ? count : 0);
  return at >= 0 && at < count ? std::optional(static_cast<size_t>(at)) : std::nullopt;
}

// The same for a constant index; nothing if the index is not constant.
inline std::optional<size_t> constant_index(const Value& index, size_t size) {
  const auto* constant = index.constant();
  return constant && constant->isInt() ? position_among(size, constant->toInt()) : std::nullopt;
}

}  // namespace sconce
