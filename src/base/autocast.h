// The calling thread's autocast.
#pragma once

#include <ATen/autocast_mode.h>
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

// Switches autocast's cache off on this thread, so that every cast is computed. A cast from the cache has the history of the
// run that made it, which may be no history.
class AutocastWithoutCache {
 public:
  AutocastWithoutCache() : was_enabled_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastWithoutCache() { at::autocast::set_autocast_cache_enabled(was_enabled_); }
  AutocastWithoutCache(const AutocastWithoutCache&) = delete;
  AutocastWithoutCache& operator=(const AutocastWithoutCache&) = delete;

 private:
  const bool was_enabled_;
};

}  // namespace sconce
