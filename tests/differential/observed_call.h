// One call of a graph and everything about it that must not depend on who ran it.
#pragma once

#include "tools/sconce/values/compare.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sconce::testing {

struct ObservedCall {
  std::optional<std::string> error;  // what the call threw, in one line
  std::vector<c10::IValue> outputs;
  std::vector<c10::IValue> arguments;  // after the call: it may have written into them
  at::Tensor generator_state;
  // Of the mean squares of the outputs, by each argument that requires a gradient.
  std::vector<at::Tensor> gradients;
  std::optional<std::string> gradient_error;  // an operator in place may have destroyed what backward needs
};

// Replaces the inputs on the stack by the outputs.
using RunGraph = std::function<void(torch::jit::Stack&)>;

// Runs on a deep copy of the arguments, with LibTorch's generator seeded.
ObservedCall observe_call(const std::vector<c10::IValue>& arguments, uint64_t seed, const RunGraph& run);

enum class Strictness {
  kEverything,  // values, strides, versions, who is a view, who shares memory, the generator, gradients
  kValues,      // values and gradients
};
// What differs, one line each. Empty: nothing. `gradients`: for these, if not `options`.
std::vector<std::string> differences(const ObservedCall& got, const ObservedCall& expected, Strictness strictness,
                                     const cli::CompareOptions& options,
                                     const std::optional<cli::CompareOptions>& gradients = std::nullopt);

// "strides [4, 1], offset 2, a view, a leaf": what does not depend on the executor that made the tensor. Versions of new
// tensors are not: where nothing requires a gradient, sconce leaves out the layers that count the writes by which an
// operator fills its own result.
std::string describe_form(const at::Tensor& tensor);  // strides and offset
std::string describe_layout(const at::Tensor& tensor);
// The same and ", version 3": writes into what the caller has are counted always.
std::string describe_argument(const at::Tensor& tensor);

}  // namespace sconce::testing
