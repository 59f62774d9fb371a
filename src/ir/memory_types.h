// What types say about memory.
#pragma once

#include <ATen/core/jit_type_base.h>

#include <cstdint>

namespace sconce {

// Kinds of memory, as bits: a write to memory of one kind leaves that of the others as it is.
using MemoryKinds = uint8_t;
inline constexpr MemoryKinds kNoMemory = 0;
inline constexpr MemoryKinds kTensorMemory = 1;  // elements, sizes and strides of tensors
inline constexpr MemoryKinds kListMemory = 2;    // which elements a list has
inline constexpr MemoryKinds kDictMemory = 4;
inline constexpr MemoryKinds kObjectMemory = 8;  // attributes of objects, and what LibTorch's own objects hold
inline constexpr MemoryKinds kAnyMemory = 15;

// Whether values of the type can hold memory that others see: tensors, containers of them, objects.
bool holds_memory(const c10::TypePtr& type);
// Whether they can hold other values.
bool is_container(const c10::TypePtr& type);
// Whether what a container holds are containers themselves.
bool holds_containers(const c10::TypePtr& type);
// The kinds of memory that a value of the type is, without and with what it contains. A tuple is what it contains.
MemoryKinds memory_kinds_of(const c10::TypePtr& type);
MemoryKinds memory_kinds_within(const c10::TypePtr& type);
// Whether one object can be of both types: `Tensor[]` and `Tensor?[]`, but not `Tensor[]` and `int[]`.
bool may_be_of_both_types(const c10::TypePtr& a, const c10::TypePtr& b);

}  // namespace sconce
