// The caller's autocast, for calls of models.
#pragma once

#include "tools/peers/peer.h"

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>

namespace sconce::cli {

// The dtype to which autocast casts in all calls of models of this process; nothing: autocast is off. Set before
// the first call.
void set_autocast_of_calls(std::optional<c10::ScalarType> dtype);
std::optional<c10::ScalarType> autocast_of_calls();
// Returns the tolerance for results of such calls, relative and absolute: some steps of bfloat16.
std::optional<double> tolerance_of_autocast();

// While it exists, autocast is on in this thread, if it shall be on in calls. Its end is that of an outermost region: what
// autocast keeps is dropped.
class AutocastRegion {
 public:
  explicit AutocastRegion(c10::DeviceType device = c10::kCPU);
  ~AutocastRegion();
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  const c10::DeviceType device_;
  std::optional<c10::ScalarType> dtype_before_;
};

// Makes each call of the peer in an autocast region.
std::unique_ptr<peers::Peer> with_autocast_of_calls(std::unique_ptr<peers::Peer> peer);

}  // namespace sconce::cli
