// The dispatch keys of plain tensors.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKeySet.h>

namespace sconce {

// Returns the keys that a dense tensor of this kind of device may have if it is nothing but a tensor (rule R10). Returns
// none for kinds of devices that have no kernels.
inline c10::DispatchKeySet plain_keys(c10::DeviceType type) {
  constexpr c10::DispatchKeySet kCpu({c10::DispatchKey::CPU, c10::DispatchKey::ADInplaceOrView,
                                      c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutocastCPU});
  constexpr c10::DispatchKeySet kCuda({c10::DispatchKey::CUDA, c10::DispatchKey::ADInplaceOrView,
                                       c10::DispatchKey::AutogradCUDA, c10::DispatchKey::AutocastCUDA});
  return type == c10::kCPU ? kCpu : type == c10::kCUDA ? kCuda : c10::DispatchKeySet();
}

// Returns whether the keys are those of a plain tensor of this kind of device.
inline bool are_plain(c10::DispatchKeySet keys, c10::DeviceType type) {
  return (keys.raw_repr() & ~plain_keys(type).raw_repr()) == 0;
}

}  // namespace sconce
