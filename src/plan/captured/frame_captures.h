// FrameCaptures: the captured ranges of one frame, and the stream and event that they share.
#pragma once

#include "plan/captured/captured_range.h"
#include "plan/device/device.h"

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <map>
#include <memory>
#include <optional>

namespace sconce {

// A frame serves one run at a time, so its captures never run at the same time. Their order is that of the streams that
// runs have as current ones: a run on another stream than the one before waits for that.
class FrameCaptures {
 public:
  FrameCaptures(DeviceRuntime& runtime, c10::Device device);
  ~FrameCaptures();

  DeviceRuntime& runtime() const { return runtime_; }
  c10::Stream current_stream() const { return runtime_.current_stream(device_.index()); }
  c10::Stream side_stream() const { return side_; }
  CapturedRange& range(const CapturedNode& node);

  // Lets work of `later` wait for all work that `earlier` has now.
  void order(c10::Stream earlier, c10::Stream later);
  // Orders the current stream after earlier uses of captured memory.
  void begin_use();
  // Waits until the device has done with captured memory, which others get from now on. Warns if the driver fails.
  void end_use() noexcept;

 private:
  DeviceRuntime& runtime_;
  const c10::Device device_;
  const std::unique_ptr<DeviceEvent> event_;
  const c10::Stream side_;           // taken last: nothing fails after it
  std::optional<c10::Stream> last_;  // that used captured memory
  std::map<const CapturedNode*, CapturedRange> ranges_;
};

// Makes the side stream of a frame's captures the current one. The work on it runs after what the current stream has when
// the scope begins, and before what that gets after it has ended.
class SideStreamScope {
 public:
  explicit SideStreamScope(FrameCaptures& captures);
  ~SideStreamScope();
  SideStreamScope(const SideStreamScope&) = delete;
  SideStreamScope& operator=(const SideStreamScope&) = delete;
  // Ends the scope. Throws c10::Error if the driver fails.
  void end();

 private:
  FrameCaptures& captures_;
  const c10::Stream before_;
  std::optional<CurrentStream> current_;
};

}  // namespace sconce
