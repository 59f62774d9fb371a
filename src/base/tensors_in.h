// The tensors that a module holds.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <vector>

namespace sconce {

// Calls `use` with a value and each part of it: elements of lists, tuples and dicts, and the attributes of objects. Each
// object counts once.
void for_each_part(const c10::IValue& value, c10::function_ref<void(const c10::IValue&)> use);

// Returns the tensors among the parts. Undefined tensors are left out.
std::vector<at::Tensor> tensors_in(const c10::IValue& value);

}  // namespace sconce
