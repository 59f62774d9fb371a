// tensors_in: what a module holds.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace sconce {

// Returns the tensors in a value: in lists, tuples and dicts, and in the attributes of objects, each object once. Undefined
// tensors are left out.
std::vector<at::Tensor> tensors_in(const c10::IValue& value);

}  // namespace sconce
