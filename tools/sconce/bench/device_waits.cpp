#include "tools/sconce/bench/device_waits.h"

#include "tools/sconce/values/value_walk.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace sconce::cli {

DeviceWaits::DeviceWaits(const torch::jit::Module& module, const std::vector<c10::IValue>& arguments) {
  for (const at::Tensor& parameter : module.parameters()) {
    add(parameter);
  }
  for (const at::Tensor& buffer : module.buffers()) {
    add(buffer);
  }
  for (const c10::IValue& argument : arguments) {
    for (const NamedTensor& each : tensors_in(argument, "", Objects::kEnter)) {
      add(each.tensor);
    }
  }
}

void DeviceWaits::add(const at::Tensor& tensor) {
  const c10::Device device = tensor.device();
  if (!device.is_cpu() && !device.is_meta() && std::find(devices_.begin(), devices_.end(), device) == devices_.end()) {
    devices_.push_back(device);
  }
}

void DeviceWaits::wait() const {
  for (const c10::Device device : devices_) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
}

}  // namespace sconce::cli
