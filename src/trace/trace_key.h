// TraceKey: what a trace may depend on besides the elements of its inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sconce {

using TraceKey = std::vector<int64_t>;

// The key in two parts, of which a trace may leave the second one open.
struct TraceKeyParts {
  // The thread's state (grad mode, inference mode, autocast by device, default dtype, deterministic algorithms, dispatch
  // keys), then per tensor: dtype, device, layout, rank, order of the dims in memory, whether it is a leaf, requires a
  // gradient, is an inference tensor, is conjugated; which inputs are one tensor, and which share memory.
  TraceKey structure;
  std::vector<int64_t> sizes;  // of all strided tensors, each with its strides if it has gaps
};
// Returns whether the strides of a tensor are not those of a new one with its dims in another order.
bool has_gaps(const at::Tensor& tensor);
// Returns dtype, device, rank, and what autograd knows of the tensor, in one word.
int64_t tensor_kind(const at::Tensor& tensor);
TraceKeyParts trace_key_parts(std::span<const at::Tensor> inputs);
// Appends to both parts what belongs to the tensors, without the thread's state.
void append_tensors(TraceKeyParts& key, std::span<const at::Tensor> inputs);

// Returns both parts as one.
TraceKey trace_key(std::span<const at::Tensor> inputs);
// Returns the words as bytes, for a table of text.
std::string_view bytes_of(const TraceKey& key);

// Returns "Float[4,3] requires_grad, Long[4]".
std::string describe_inputs(std::span<const at::Tensor> inputs);

}  // namespace sconce
