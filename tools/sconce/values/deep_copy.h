// Copies of arguments that share nothing with the original, but among themselves what the original shares.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace sconce::cli {

// A call may write into its arguments, so every call gets a copy of its own. As Python's copy.deepcopy:
//   - one object in two places stays one object,
//   - two views of one storage stay views of one storage, with the same strides and offsets,
//   - leaves that require grad require it again; other tensors lose their gradient graph.
// Sparse, quantized and other tensors without plain strides are cloned one by one.
std::vector<c10::IValue> deep_copy(const std::vector<c10::IValue>& values);
c10::IValue deep_copy(const c10::IValue& value);

// The same, with tensors on the device.
std::vector<c10::IValue> deep_copy_to(const std::vector<c10::IValue>& values, c10::Device device);

}  // namespace sconce::cli
