#include "trace/undone_writes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>

namespace sconce {
namespace {

at::Generator& generator() {
  static auto& shared = *new at::Generator(at::detail::getDefaultCPUGenerator());
  return shared;
}

}  // namespace

UndoneWrites::UndoneWrites(std::span<const at::Tensor> tensors) : random_state_(generator().get_state()) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) {
    // No operator writes a tensor of which elements share memory.
    if (tensor.defined() && tensor.layout() == c10::kStrided && at::has_internal_overlap(tensor) != at::MemOverlap::Yes) {
      before_.emplace_back(tensor.variable_data(), tensor.detach().clone());
    }
  }
}

void UndoneWrites::undo() {
  if (is_kept_) {
    return;
  }
  is_kept_ = true;
  const at::NoGradGuard no_grad;
  for (auto& [tensor, contents] : before_) {
    tensor.copy_(contents);  // of its own version: this does not count as a write
  }
  generator().set_state(random_state_);
}

}  // namespace sconce
