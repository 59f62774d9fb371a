#include "tests/ops/gradient_cases.h"

#include "tests/support/graphs.h"

#include "autodiff/rules/record_gradient.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/operator.h>

namespace sconce::testing {

const std::vector<GradientCase>& gradient_cases() {
  static const std::vector<GradientCase> cases = read_operator_cases(tests_dir() + "/ops/gradients");
  return cases;
}

Values call_operator(const Op& op, const Values& arguments) {
  at::manual_seed(kOperatorSeed);
  torch::jit::Stack stack = arguments;
  op.registered->getOperation()(stack);
  return stack;
}

const OpGradient* rule_of(const Op& op, const Values& arguments) {
  const Op& row = op.canonical != nullptr ? *op.canonical : op;
  if (!row.recorded_gradient) {
    return gradient_of(op);
  }
  const RecordedGradient& recorded = record_gradient(pattern_of(row, arguments, differentiable_positions(op, arguments)));
  return recorded.refusal.empty() ? &recorded.gradient : nullptr;
}

std::vector<size_t> differentiable_positions(const Op& op, const Values& arguments) {
  std::vector<size_t> positions = floating_positions(arguments);
  std::erase_if(positions, [&](size_t position) {
    Values copies = arguments;
    for (const size_t floating : floating_positions(arguments)) {
      copies[floating] = arguments[floating].toTensor().detach().clone();
    }
    copies[position].toTensor().requires_grad_(true);
    try {
      call_operator(op, copies);
      return false;
    } catch (const std::exception& error) {
      return sconce::message_of(error).find("is not differentiable with respect to") != std::string::npos;
    }
  });
  return positions;
}

ForwardPass run_forward(const Op& op, const Values& arguments) {
  const OpGradient& gradient = *rule_of(op, arguments);
  if (gradient.forward == nullptr) {
    return {.results = call_operator(op, arguments), .saved = {}};
  }
  at::manual_seed(kOperatorSeed);
  ForwardPass pass{.results = run(*gradient.forward, arguments).at(0).toTupleRef().elements().vec(), .saved = {}};
  const auto first_saved = pass.results.begin() + static_cast<std::ptrdiff_t>(op.schema->returns().size());
  pass.saved.assign(first_saved, pass.results.end());
  pass.results.erase(first_saved, pass.results.end());
  return pass;
}

namespace {

// The gradients of an operator that is composed of others.
std::vector<at::Tensor> gradients_by_autograd(const Op& op, Values arguments, const std::vector<at::Tensor>& grads,
                                              const std::vector<size_t>& needed, bool records) {
  const at::AutoGradMode recording(true);
  std::vector<at::Tensor> leaves;
  for (const size_t position : needed) {
    if (!arguments[position].toTensor().requires_grad()) {
      arguments[position] = arguments[position].toTensor().detach().requires_grad_(true);
    }
    leaves.push_back(arguments[position].toTensor());
  }
  std::vector<at::Tensor> results;
  for (const c10::IValue& result : run_forward(op, arguments).results) {
    results.push_back(result.toTensor());
  }
  const auto found = torch::autograd::grad(results, leaves, grads, /*retain_graph=*/true, records, /*allow_unused=*/true);
  std::vector<at::Tensor> gradients(arguments.size());
  for (size_t i = 0; i < needed.size(); ++i) {
    gradients[needed[i]] = found[i];
  }
  return gradients;
}

}  // namespace

std::vector<at::Tensor> run_backward(const Op& op, const Values& arguments, const ForwardPass& forward,
                                     const std::vector<at::Tensor>& grads, const std::vector<size_t>& needed, bool records) {
  const OpGradient& rule = *rule_of(op, arguments);
  if (rule.backward == nullptr) {
    return gradients_by_autograd(op, arguments, grads, needed, records);
  }
  c10::List<bool> needs;
  needs.resize(arguments.size(), false);
  Values inputs = arguments;
  inputs.insert(inputs.end(), forward.results.begin(), forward.results.end());
  inputs.insert(inputs.end(), forward.saved.begin(), forward.saved.end());
  inputs.insert(inputs.end(), grads.begin(), grads.end());
  append_all_defined(inputs, grads.size());
  for (const size_t position : needed) {
    needs.set(position, true);
  }
  inputs.emplace_back(needs);
  inputs.emplace_back(records);
  const Values entries = run(*rule.backward, inputs).at(0).toTupleRef().elements().vec();
  std::vector<at::Tensor> gradients(arguments.size());
  for (const size_t position : needed) {
    if (position < entries.size() && entries[position].isTensor()) {
      const at::Tensor& argument = arguments[position].toTensor();
      gradients[position] = at::sum_to(entries[position].toTensor(), argument.sizes()).to(argument.scalar_type());
    }
  }
  return gradients;
}

std::vector<size_t> floating_positions(const Values& values) {
  std::vector<size_t> positions;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].isTensor() && values[i].toTensor().defined() && values[i].toTensor().is_floating_point()) {
      positions.push_back(i);
    }
  }
  return positions;
}

}  // namespace sconce::testing
