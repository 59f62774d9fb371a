#include "tools/sconce/check/gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

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

}  // namespace sconce::cli
