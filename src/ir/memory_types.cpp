#include "ir/memory_types.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::OptionalType ? type->expectRef<c10::OptionalType>().getElementType() : type;
}

// Returns whether every object of the type's kind is of no other kind. False for `Any`, unions and interfaces, and
// for None, which every optional type includes.
bool is_of_one_kind(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::ListType:
    case c10::TypeKind::DictType:
    case c10::TypeKind::TupleType:
    case c10::TypeKind::ClassType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType: return true;
    default: return false;
  }
}

}  // namespace

bool holds_memory(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::EnumType:
    case c10::TypeKind::FunctionType:
    case c10::TypeKind::StreamObjType: return false;
    case c10::TypeKind::OptionalType: return holds_memory(type->expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::TupleType: {
      const auto elements = type->expectRef<c10::TupleType>().elements();
      return std::ranges::any_of(elements, holds_memory);
    }
    default: return true;
  }
}

bool is_container(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::StorageType: return false;
    case c10::TypeKind::OptionalType: return is_container(type->expectRef<c10::OptionalType>().getElementType());
    default: return holds_memory(type);
  }
}

bool holds_containers(const c10::TypePtr& type) { return std::ranges::any_of(type->containedTypes(), is_container); }

MemoryKinds memory_kinds_of(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::StorageType: return kTensorMemory;
    case c10::TypeKind::ListType: return kListMemory;
    case c10::TypeKind::DictType: return kDictMemory;
    case c10::TypeKind::ClassType: return kObjectMemory;
    case c10::TypeKind::TupleType: return memory_kinds_within(type);
    case c10::TypeKind::OptionalType: return memory_kinds_of(without_optional(type));
    default: return holds_memory(type) ? kAnyMemory : kNoMemory;
  }
}

MemoryKinds memory_kinds_within(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::StorageType: return kTensorMemory;
    case c10::TypeKind::ListType:
    case c10::TypeKind::DictType:
    case c10::TypeKind::TupleType:
    case c10::TypeKind::OptionalType: {
      MemoryKinds kinds = type->kind() == c10::TypeKind::TupleType ? kNoMemory : memory_kinds_of(type);
      for (const c10::TypePtr& part : type->containedTypes()) {
        kinds |= memory_kinds_within(part);
      }
      return kinds;
    }
    default: return holds_memory(type) ? kAnyMemory : kNoMemory;
  }
}

bool may_be_of_both_types(const c10::TypePtr& a, const c10::TypePtr& b) {
  const c10::TypePtr first = without_optional(a);
  const c10::TypePtr second = without_optional(b);
  if (!is_of_one_kind(first) || !is_of_one_kind(second)) {
    return true;
  }
  if (first->kind() != second->kind()) {
    return false;
  }
  if (first->kind() == c10::TypeKind::TensorType || *first == *second) {
    return true;
  }
  if (first->kind() == c10::TypeKind::ClassType) {
    return false;
  }
  const auto parts = first->containedTypes();
  const auto other_parts = second->containedTypes();
  return std::equal(parts.begin(), parts.end(), other_parts.begin(), other_parts.end(), may_be_of_both_types);
}

}  // namespace sconce
