// What types say about memory.
#pragma once

#include <ATen/core/jit_type_base.h>

namespace sconce {

// Whether values of the type can hold memory that others see: tensors, containers of them, objects.
bool holds_memory(const c10::TypePtr& type);
// Whether they can hold other values.
bool is_container(const c10::TypePtr& type);
// Whether what a container holds are containers themselves.
bool holds_containers(const c10::TypePtr& type);
// Whether one object can be of both types: `Tensor[]` and `Tensor?[]`, but not `Tensor[]` and `int[]`.
bool may_be_of_both_types(const c10::TypePtr& a, const c10::TypePtr& b);

}  // namespace sconce
