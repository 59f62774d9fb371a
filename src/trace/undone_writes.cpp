#include "trace/undone_writes.h"

#include "base/cpu_generator.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace sconce {

UndoneWrites::UndoneWrites(std::span<const at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  add_generator(cpu_generator());
  for (const at::Tensor& tensor : tensors) {
    const auto is_of_device = [&](const auto& each) { return each.first.device() == tensor.device(); };
    if (tensor.defined() && at::accelerator::isAccelerator(tensor.device().type()) &&
        std::none_of(generators_.begin(), generators_.end(), is_of_device)) {
      add_generator(at::globalContext().defaultGenerator(tensor.device()));
    }
    // No operator writes a tensor of which elements share memory.
    if (tensor.defined() && tensor.layout() == c10::kStrided && at::has_internal_overlap(tensor) != at::MemOverlap::Yes) {
      before_.push_back(
          {tensor, tensor.variable_data(), tensor.detach().clone(), tensor.is_inference() ? 0 : tensor._version()});
    }
  }
}

void UndoneWrites::add_generator(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  at::Tensor state = generator.get_state();
  generators_.emplace_back(generator, std::move(state));
}

void UndoneWrites::undo() {
  if (is_kept_) {
    return;
  }
  is_kept_ = true;
  const at::NoGradGuard no_grad;
  for (const Before& before : before_) {
    before.alias.copy_(before.contents);
    if (before.tensor.sizes() != before.alias.sizes() || before.tensor.strides() != before.alias.strides()) {
      before.tensor.unsafeGetTensorImpl()->set_sizes_and_strides(before.alias.sizes(), before.alias.strides(),
                                                                 before.alias.storage_offset());
    }
    if (!before.tensor.is_inference()) {
      c10::VariableVersion version = torch::autograd::impl::version_counter(before.tensor);  // the tensor's own
      version.set_version(before.version);
    }
  }
  for (auto& [generator, state] : generators_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

}  // namespace sconce
