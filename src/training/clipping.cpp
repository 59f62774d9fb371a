#include "training/clipping.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/stack.h>

#include <sstream>

namespace sconce {

at::Tensor clip_factor(const std::vector<at::Tensor>& gradients, double max_norm) {
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) {
    norms.push_back(gradient.norm(2.0));
  }
  const at::Tensor norm = norms.size() == 1 ? norms.front() : at::stack(norms).norm(2.0);
  return at::clamp(max_norm / (norm + 1e-6), std::nullopt, 1.0);
}

std::string clip_factor_text(size_t count, double max_norm) {
  std::ostringstream text;
  text.precision(17);
  text << "def clip_factor(";
  for (size_t i = 0; i < count; ++i) {
    text << (i == 0 ? "grad" : ", grad") << i << ": Tensor";
  }
  text << "):\n    norms = [";
  for (size_t i = 0; i < count; ++i) {
    text << (i == 0 ? "grad" : ", grad") << i << ".norm(2.0)";
  }
  text << "]\n"
          "    norm = "
       << (count == 1 ? "norms[0]" : "torch.stack(norms).norm(2.0)") << " + 1e-6\n"
       << "    return torch.clamp(torch.full_like(norm, " << std::scientific << max_norm << ").div(norm), max=1.0)\n";
  return text.str();
}

}  // namespace sconce
