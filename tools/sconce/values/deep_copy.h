// Deep copies of arguments. They share no memory with the original, and keep the sharing among themselves.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace sconce::cli {

// Returns a deep copy: a call may write its arguments, so every call gets a copy of its own. Like Python's copy.deepcopy,
//   - one object in two places stays one object,
//   - two views of one storage stay views of one storage, with the same strides and offsets,
//   - leaves that require grad require it again; other tensors lose their gradient graph.
// Sparse, quantized and other tensors without plain strides are cloned one by one.
std::vector<c10::IValue> deep_copy(const std::vector<c10::IValue>& values);
c10::IValue deep_copy(const c10::IValue& value);

// The same, with the tensors on `device`.
std::vector<c10::IValue> deep_copy_to(const std::vector<c10::IValue>& values, c10::Device device);

}  // namespace sconce::cli
