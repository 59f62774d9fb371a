#include "trace/undone_writes.h"

#include "base/cpu_generator.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

namespace sconce {
UndoneWrites::UndoneWrites(std::span<const at::Tensor> tensors) : random_state_(cpu_generator().get_state()) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) {
    // No operator writes a tensor of which elements share memory.
    if (tensor.defined() && tensor.layout() == c10::kStrided && at::has_internal_overlap(tensor) != at::MemOverlap::Yes) {
      before_.push_back({tensor, tensor.detach().clone(), tensor.is_inference() ? 0 : tensor._version()});
    }
  }
}

void UndoneWrites::undo() {
  if (is_kept_) {
    return;
  }
  is_kept_ = true;
  const at::NoGradGuard no_grad;
  for (const Before& before : before_) {
    before.tensor.variable_data().copy_(before.contents);
    if (!before.tensor.is_inference()) {
      c10::VariableVersion version = torch::autograd::impl::version_counter(before.tensor);  // the tensor's own
      version.set_version(before.version);
    }
  }
  cpu_generator().set_state(random_state_);
}

}  // namespace sconce
