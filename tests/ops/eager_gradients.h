// What eager mode gives for the calls of gradient_cases.h.
#pragma once

#include "tests/ops/gradient_cases.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace sconce::testing {

using Tensors = std::vector<at::Tensor>;

// Returns tensors of their own, of the dtype where they are floating. Those at `leaves` require a gradient.
Values copies_of(const Values& values, at::ScalarType dtype, const std::vector<size_t>& leaves = {});

// Returns tensors of their own, of any dtype, none of which requires a gradient.
Values own_copies_of(const Values& values);

// Returns random tensors like those that are floating, zeros in place of the others.
Tensors random_like(const Values& values);

Tensors tensors_at(const Values& values, const std::vector<size_t>& positions);

// Returns the gradients of the differentiable results by the leaves; undefined ones where autograd gives none.
Tensors eager_gradients(const Values& results, const Tensors& leaves, const Tensors& grads, bool create_graph = false);

// Returns the positions of floating arguments that may require a gradient: of others LibTorch says that it has no
// derivative.
std::vector<size_t> differentiable_positions(const GradientCase& each, const Values& arguments);

// Returns whether the row has a gradient and its condition holds for the arguments.
bool is_differentiated(const GradientCase& each, const Values& arguments);

// Returns by how much gradients may differ.
double tolerance_for(const Op& op, at::ScalarType dtype);

// Returns what `compute` returns, or nothing where LibTorch raises.
template <typename Compute>
auto unless_it_raises(const Compute& compute) -> std::optional<decltype(compute())> {
  try {
    return compute();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace sconce::testing
