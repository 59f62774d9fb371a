#include "tests/ops/eager_gradients.h"

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

namespace sconce::testing {

Values copies_of(const Values& values, at::ScalarType dtype, const std::vector<size_t>& leaves) {
  Values copies = values;
  const std::vector<size_t> floating = floating_positions(values);
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].isTensor() && copies[i].toTensor().defined()) {
      const bool is_floating = std::ranges::find(floating, i) != floating.end();
      const at::Tensor copy = copies[i].toTensor().detach().clone();
      copies[i] = is_floating ? copy.to(dtype) : copy;
    }
  }
  for (const size_t leaf : leaves) {
    copies[leaf].toTensor().requires_grad_(true);
  }
  return copies;
}

Values own_copies_of(const Values& values) {
  Values copies = values;
  for (c10::IValue& copy : copies) {
    if (copy.isTensor() && copy.toTensor().defined()) {
      copy = copy.toTensor().detach().clone();
    }
  }
  return copies;
}

Tensors random_like(const Values& values) {
  Tensors made;
  for (const c10::IValue& value : values) {
    const at::Tensor tensor = value.toTensor();
    made.push_back(tensor.is_floating_point() ? at::rand_like(tensor) : at::zeros(tensor.sizes(), at::kDouble));
  }
  return made;
}

Tensors eager_gradients(const Values& results, const Tensors& leaves, const Tensors& grads, bool create_graph) {
  Tensors outputs;
  Tensors incoming;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].toTensor().requires_grad()) {
      outputs.push_back(results[i].toTensor());
      incoming.push_back(grads[i]);
    }
  }
  if (outputs.empty()) {
    return Tensors(leaves.size());
  }
  return torch::autograd::grad(outputs, leaves, incoming, /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
}

Tensors tensors_at(const Values& values, const std::vector<size_t>& positions) {
  Tensors tensors;
  for (const size_t position : positions) {
    tensors.push_back(values[position].toTensor());
  }
  return tensors;
}

std::vector<size_t> differentiable_positions(const GradientCase& each, const Values& arguments) {
  return differentiable_positions(*each.op, copies_of(arguments, at::kDouble));
}

bool is_differentiated(const GradientCase& each, const Values& arguments) {
  const OpGradient* gradient = rule_of(*each.op, arguments);
  return gradient != nullptr && (gradient->condition == nullptr || run(*gradient->condition, arguments).at(0).toBool());
}

// LibTorch multiplies by 1/6 in float there, also for doubles.
double tolerance_for(const Op& op, at::ScalarType dtype) {
  return dtype == at::kFloat ? 2e-4 : op.name == "aten::hardsigmoid" ? 1e-7 : 1e-10;
}

}  // namespace sconce::testing
