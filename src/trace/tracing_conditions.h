// Conditions of traces that are not part of a call's key.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace sconce {

// Returns why a call can neither be recorded nor run by a recorded plan at the moment; null if nothing forbids it. That is
// no fact about calls of its kind: the next one may differ. `leaves`: whose gradients the call computes.
const char* why_not_now(std::span<const at::Tensor> leaves);

// Returns why a recorded plan cannot read the tensor in later calls; null if it can. `tensor`: one that the recorded call
// has found outside of its arguments.
const char* why_not_kept(const at::Tensor& tensor);

// Returns whether hooks of a leaf, or of the node that accumulates its gradient, see its gradient.
bool has_hooks(const at::Tensor& leaf);

// Returns how many of a tensor's hooks have not been removed.
size_t count_hooks(const std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>& hooks);

}  // namespace sconce
