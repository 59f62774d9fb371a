#include "tools/sconce/check/gradients.h"

#include "base/exception_message.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>

namespace sconce::cli {

std::vector<at::Tensor> differentiable_tensors(const c10::IValue& output) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& named : tensors_in(output, "out", Objects::kSkip)) {
    if (named.tensor.is_floating_point() && named.tensor.requires_grad()) {
      tensors.push_back(named.tensor);
    }
  }
  return tensors;
}

std::vector<NamedTensor> trained_parameters(const torch::jit::Module& module) {
  std::vector<NamedTensor> parameters;
  for (const auto& parameter : module.named_parameters()) {
    if (parameter.value.requires_grad()) {
      parameters.push_back({parameter.name, parameter.value});
    }
  }
  return parameters;
}

std::optional<at::Tensor> mean_square_loss(const std::vector<at::Tensor>& outputs) {
  std::optional<at::Tensor> loss;
  for (const at::Tensor& output : outputs) {
    const at::Tensor term = (output * output).mean();
    loss = loss ? *loss + term : term;
  }
  return loss;
}

std::optional<at::Tensor> sum_loss(const std::vector<at::Tensor>& outputs) {
  std::optional<at::Tensor> loss;
  for (const at::Tensor& output : outputs) {
    const at::Tensor term = output.sum();
    loss = loss ? *loss + term : term;
  }
  return loss;
}

std::vector<at::Tensor> gradients(const at::Tensor& loss, const std::vector<at::Tensor>& wanted) {
  std::vector<at::Tensor> found = torch::autograd::grad({loss}, wanted, {}, /*retain_graph=*/std::nullopt,
                                                        /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i].defined()) {
      found[i] = at::zeros_like(wanted[i]);
    }
  }
  return found;
}

CallGradients gradients_of_call(const c10::IValue& output, const std::vector<c10::IValue>& arguments,
                                const torch::jit::Module& module) {
  CallGradients found;
  found.by_name = trained_parameters(module);
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (NamedTensor& named : tensors_in(arguments[i], "inputs[" + std::to_string(i) + "]", Objects::kSkip)) {
      if (named.tensor.requires_grad()) {
        found.by_name.push_back(std::move(named));
      }
    }
  }
  if (found.by_name.empty()) {
    found.why_none = "no parameter of the model and no argument requires one";
    return found;
  }
  std::vector<at::Tensor> wanted;
  for (const NamedTensor& named : found.by_name) {
    wanted.push_back(named.tensor);
  }
  try {
    const auto loss = mean_square_loss(differentiable_tensors(output));
    if (!loss) {
      found.by_name.clear();
      found.why_none = "no floating-point tensor of the output requires one";
      return found;
    }
    const std::vector<at::Tensor> values = gradients(*loss, wanted);
    for (size_t i = 0; i < values.size(); ++i) {
      found.by_name[i].tensor = values[i];
    }
  } catch (const std::exception& failure) {
    found.by_name.clear();
    found.error = one_line_message(failure);
  }
  return found;
}

std::string gradient_path(const NamedTensor& gradient) { return "grad of " + gradient.path; }

std::vector<Mismatch> compare_gradients(const CallGradients& got, const CallGradients& expected,
                                        const CompareOptions& options) {
  if (got.by_name.size() != expected.by_name.size()) {
    const auto count = [](const CallGradients& gradients) {
      return gradients.by_name.empty() ? "no gradient (" + gradients.why_none + ")"
                                       : std::to_string(gradients.by_name.size()) + " gradients";
    };
    return {{"grad", count(got) + "; with LibTorch " + count(expected), {}, {}, {}}};
  }
  std::vector<Mismatch> mismatches;
  for (size_t i = 0; i < got.by_name.size(); ++i) {
    const auto found =
        compare(got.by_name[i].tensor, expected.by_name[i].tensor, options, gradient_path(expected.by_name[i]));
    mismatches.insert(mismatches.end(), found.begin(), found.end());
  }
  return mismatches;
}

}  // namespace sconce::cli
