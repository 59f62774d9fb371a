// TraceKey: what a trace may depend on besides the elements of its inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sconce {

// The thread's state (grad mode, inference mode, autocast, default dtype, deterministic algorithms), then per tensor: dtype,
// device, layout, sizes, strides, whether it is a leaf, requires a gradient, is an inference tensor, is conjugated; which
// inputs are one tensor, and which share memory.
using TraceKey = std::vector<int64_t>;
TraceKey trace_key(std::span<const at::Tensor> inputs);
uint64_t hash_of(const TraceKey& key);

// Returns "Float[4,3] requires_grad, Long[4]".
std::string describe_inputs(std::span<const at::Tensor> inputs);

}  // namespace sconce
