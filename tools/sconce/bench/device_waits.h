// DeviceWaits: waits for GPUs, so that measured times hold their work.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>

#include <vector>

namespace sconce::cli {

// The devices, other than the CPU, of a model's tensors and of its arguments. A call returns while they still work.
class DeviceWaits {
 public:
  DeviceWaits() = default;
  DeviceWaits(const torch::jit::Module& module, const std::vector<c10::IValue>& arguments);

  // Waits until the devices have done what they were given. Throws c10::Error if a driver reports a failure.
  void wait() const;

 private:
  void add(const at::Tensor& tensor);

  std::vector<c10::Device> devices_;
};

}  // namespace sconce::cli
