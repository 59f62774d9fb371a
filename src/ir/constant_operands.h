// What analyses and passes ask of operands that are constants.
#pragma once

#include "ir/graph.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>

namespace sconce {

// Whether a prim::Constant can hold values of the type: tensors, numbers and the like, lists and tuples of the latter.
inline bool can_be_constant(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::ListType:
    case c10::TypeKind::TupleType:
    case c10::TypeKind::OptionalType: {
      const auto contained = type->containedTypes();
      return std::all_of(contained.begin(), contained.end(), [](const c10::TypePtr& inner) {
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

inline bool is_tensor(const Value& value) { return value.type()->kind() == c10::TypeKind::TensorType; }

inline bool is_none(const Value& value) { return value.type()->kind() == c10::TypeKind::NoneType; }

inline bool is_constant_int(const Value& value, int64_t wanted) {
  const auto constant = value.constant();
  return constant && constant->isInt() && constant->toInt() == wanted;
}

inline std::optional<bool> constant_bool(const Value& value) {
  const auto constant = value.constant();
  return constant && constant->isBool() ? std::optional(constant->toBool()) : std::nullopt;
}

// The position among `size` elements that an index means: counted from the back when negative. Nothing out of range.
inline std::optional<size_t> position_among(size_t size, int64_t index) {
  const auto count = static_cast<int64_t>(size);
  const int64_t at = index + (index < 0 ? count : 0);
  return at >= 0 && at < count ? std::optional(static_cast<size_t>(at)) : std::nullopt;
}

// The same of an index that is a constant; nothing when it is none.
inline std::optional<size_t> constant_index(const Value& index, size_t size) {
  const auto constant = index.constant();
  return constant && constant->isInt() ? position_among(size, constant->toInt()) : std::nullopt;
}

}  // namespace sconce
