// Traced functions beside the functions themselves.
#pragma once

#include <sconce/trace.h>

#include <ATen/core/Tensor.h>

#include <vector>

namespace sconce::tests {

using Tensors = std::vector<at::Tensor>;
using Function = TracedFunction::Function;

at::Tensor leaf(at::IntArrayRef sizes);

// Compares a trace of the function with the function, for each of the calls in turn: results, arguments afterwards, and
// gradients of the mean squares of the results.
void expect_same(const Function& function, const TracedFunction& traced, const std::vector<Tensors>& calls, int rounds);
// The same for three rounds of a new trace: the calls that trace, and calls of the plans after them. Returns the trace.
TracedFunction expect_same(const Function& function, const std::vector<Tensors>& calls);

}  // namespace sconce::tests
