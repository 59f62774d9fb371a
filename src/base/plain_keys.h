// The dispatch keys of plain tensors.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKeySet.h>

#include <array>

namespace sconce {

// All keys of a dense tensor that is nothing but a tensor; none where tensors have no memory.
struct PlainKeys {
  PlainKeys();
  std::array<c10::DispatchKeySet, static_cast<size_t>(c10::BackendComponent::EndOfBackendKeys) + 1> by_backend;
  std::array<c10::DispatchKeySet, c10::COMPILE_TIME_MAX_DEVICE_TYPES> by_device;
};
inline const PlainKeys kPlainKeys;

// Returns the keys that a dense tensor of this kind of device may have if it is nothing but a tensor (rule R10). Returns
// none for kinds of devices whose tensors have no memory.
inline c10::DispatchKeySet plain_keys(c10::DeviceType type) { return kPlainKeys.by_device[static_cast<size_t>(type)]; }

// Returns whether the keys are those of a plain tensor of this kind of device.
inline bool are_plain(c10::DispatchKeySet keys, c10::DeviceType type) {
  return (keys.raw_repr() & ~plain_keys(type).raw_repr()) == 0;
}

}  // namespace sconce
