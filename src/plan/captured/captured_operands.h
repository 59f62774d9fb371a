// The operands of a capture.
#pragma once

#include "plan/device/device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <span>
#include <vector>

namespace sconce {

// Returns whether kernels may read the number in memory. They do not check, as LibTorch does, that it fits their dtype.
bool fits_memory(const c10::IValue& number);

// Returns a hash of what runs must have in common to use one capture: sizes, strides, dtypes and numbers, without the
// operands that are left out.
uint64_t hash_of(std::span<const c10::IValue> operands, const std::vector<bool>& is_left_out);

// Returns whether all tensors lie as allocators place them. LibTorch draws other random numbers for elements that lie
// otherwise.
bool are_aligned(std::span<const c10::IValue> operands);

// Returns a normal tensor of the shell's form for a capture to read: over the memory at the address, or over its own if
// that is null.
at::Tensor tensor_to_capture(const at::Tensor& shell, void* address);

// Copies an operand to such a tensor, as work of the current stream.
void copy_operand(const at::Tensor& operand, const at::Tensor& captured, DeviceRuntime& runtime);

}  // namespace sconce
