// Dropout on the simulated GPU, with the random numbers of LibTorch's kernels on a real one.
#pragma once

#include "plan/device/device.h"
#include "tests/simulated_driver/fake_driver.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace sconce::testing {

// Returns what `at::native_dropout(input, p, true)` returns on a GPU of these limits whose generator has the state, for an
// input on the CPU that lies as the other one: the result and the mask, by LibTorch's Philox engine.
std::pair<at::Tensor, at::Tensor> drop_as_on_gpu(const at::Tensor& input, double p, const RandomState& state,
                                                 const DeviceLimits& limits);
// Fills the tensor, contiguous and on the CPU, as `tensor.bernoulli_(p)` fills one on a GPU.
void fill_as_on_gpu(at::Tensor& tensor, double p, const RandomState& state, const DeviceLimits& limits);
// Returns how much either call adds to the offset of the generator.
uint64_t numbers_of_dropout(int64_t elements, const DeviceLimits& limits);

// Return whether the operator draws random numbers of the GPU's generator in this call.
bool is_dropout_that_draws(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
bool is_fill_that_draws(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// Returns what computes the kernel of this text, if it is one of dropout.
std::optional<cuda::FakeDriver::KernelDefinition> dropout_kernel_of(const std::string& text);

}  // namespace sconce::testing
