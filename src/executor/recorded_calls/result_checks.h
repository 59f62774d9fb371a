// Checks of what a call returns: whether a recording of it can serve later calls.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <vector>

namespace sconce {

// Returns whether all tensors in the value are found: there are no objects in it.
bool is_plain(const c10::IValue& value);
// Returns whether a value shares a list or a dict, which is one object for those who hold it, with one of the others.
bool share_containers(const c10::IValue& value, const std::vector<c10::IValue>& others);
// Returns why a result cannot be that of a plan, which returns dense tensors with memory of their own; null if all can.
const char* why_not_new(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& others);

}  // namespace sconce
