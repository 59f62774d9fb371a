#include "base/plain_keys.h"

namespace sconce {
namespace {

c10::DispatchKeySet keys_of(c10::BackendComponent backend) {
  // Their tensors have no memory of their own.
  if (backend == c10::BackendComponent::MetaBit || backend == c10::BackendComponent::LazyBit ||
      backend == c10::BackendComponent::XLABit) {
    return {};
  }
  return c10::DispatchKeySet(c10::DispatchKey::Dense) | c10::DispatchKeySet(backend) | c10::inplace_or_view_ks |
         c10::getAutogradRelatedKeySetFromBackend(backend) | c10::getAutocastRelatedKeySetFromBackend(backend);
}

}  // namespace

PlainKeys::PlainKeys() {
#define SCONCE_ADD_KEYS(name, unused)                                                                            \
  by_backend[static_cast<size_t>(c10::BackendComponent::name##Bit)] = keys_of(c10::BackendComponent::name##Bit); \
  by_device[static_cast<size_t>(c10::DeviceType::name)] = keys_of(c10::BackendComponent::name##Bit);
  C10_FORALL_BACKEND_DEVICE_TYPES(SCONCE_ADD_KEYS, unused)
#undef SCONCE_ADD_KEYS
}

}  // namespace sconce
