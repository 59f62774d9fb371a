// The calling thread's autocast.
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace sconce {

// Returns the dispatcher's keys of all devices for which autocast is on. Autocast excludes the keys of the others.
inline c10::DispatchKeySet autocast_keys(
    const c10::impl::LocalDispatchKeySet& keys = c10::impl::tls_local_dispatch_key_set()) {
  return c10::autocast_dispatch_keyset - keys.excluded_;
}

// Returns whether autocast is on for a device. A plan does not know where its operands lie before it runs.
inline bool autocast_is_on() { return !autocast_keys().empty(); }

}  // namespace sconce
