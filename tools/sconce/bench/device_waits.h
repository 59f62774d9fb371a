// DeviceWaits: waits for GPUs, so that measured times hold their work.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>

#include <vector>

namespace sconce::cli {

// The GPUs that hold a model's tensors or its arguments. A call may return before they have done its work.
class DeviceWaits {
 public:
  DeviceWaits() = default;
  DeviceWaits(const torch::jit::Module& module, const std::vector<c10::IValue>& arguments);

  bool any() const { return !devices_.empty(); }
  // Waits until the GPUs have done all their work. Throws c10::Error if a driver reports a failure.
  void wait() const;

 private:
  void add(const at::Tensor& tensor);

  std::vector<c10::Device> devices_;
};

}  // namespace sconce::cli
