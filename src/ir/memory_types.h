// The kinds of memory that values of a type hold.
#pragma once

#include <ATen/core/jit_type_base.h>

#include <cstdint>

namespace sconce {

// Kinds of memory, as bits. A write to memory of one kind does not change memory of another kind.
using MemoryKinds = uint8_t;
inline constexpr MemoryKinds kNoMemory = 0;
inline constexpr MemoryKinds kTensorMemory = 1;  // elements, sizes and strides of tensors
inline constexpr MemoryKinds kListMemory = 2;    // the elements of lists
inline constexpr MemoryKinds kDictMemory = 4;
inline constexpr MemoryKinds kObjectMemory = 8;  // attributes of objects, and what LibTorch's own objects hold
inline constexpr MemoryKinds kAnyMemory = 15;

// Returns whether values of the type can hold memory that another value shares: tensors, containers of them, objects.
bool holds_memory(const c10::TypePtr& type);
// Returns whether values of the type can contain other values.
bool is_container(const c10::TypePtr& type);
// Returns whether the elements of a container are containers.
bool holds_containers(const c10::TypePtr& type);
// Return the kinds of memory of a value of the type, without and with the values it contains. A tuple has no memory of its
// own: it is its elements.
MemoryKinds memory_kinds_of(const c10::TypePtr& type);
MemoryKinds memory_kinds_within(const c10::TypePtr& type);
// Returns whether a value of the type is a tensor, or may contain one, also in an object.
inline bool may_hold_tensors(const c10::TypePtr& type) { return (memory_kinds_within(type) & kTensorMemory) != 0; }
// Returns whether one object can be of both types: `Tensor[]` and `Tensor?[]`, but not `Tensor[]` and `int[]`.
bool may_be_of_both_types(const c10::TypePtr& a, const c10::TypePtr& b);

}  // namespace sconce
