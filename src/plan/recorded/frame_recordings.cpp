#include "plan/recorded/frame_recordings.h"

#include <c10/util/Exception.h>

namespace sconce {

FrameRecordings::FrameRecordings(DeviceRuntime& runtime, c10::Device device)
    : runtime_(runtime),
      device_(device),
      event_(runtime.make_event(device.index(), /*is_timed=*/false)),
      side_(runtime.take_stream(device.index())) {}

FrameRecordings::~FrameRecordings() {
  end_use();
  ranges_.clear();
  runtime_.give_back(side_);
}

RecordedRange& FrameRecordings::range(const RecordedNode& node) { return ranges_.try_emplace(&node, node).first->second; }

void FrameRecordings::order(c10::Stream earlier, c10::Stream later) {
  event_->record(earlier);
  event_->block(later);
}

void FrameRecordings::begin_use() {
  const c10::Stream now = current_stream();
  if (last_ && *last_ != now) {
    order(*last_, now);
  }
  last_ = now;
}

void FrameRecordings::end_use() noexcept {
  if (!last_) {
    return;
  }
  try {
    event_->record(*last_);
    event_->wait();
  } catch (const c10::Error& failure) {
    TORCH_WARN("it is not known whether the GPU has done with recorded memory: ", failure.what_without_backtrace());
  }
  last_.reset();
}

SideStreamScope::SideStreamScope(FrameRecordings& recordings)
    : recordings_(recordings), before_(recordings.current_stream()) {
  recordings_.order(before_, recordings_.side_stream());
  current_.emplace(recordings_.runtime(), recordings_.side_stream());
}

SideStreamScope::~SideStreamScope() {
  if (current_) {
    current_.reset();
    try {
      recordings_.order(recordings_.side_stream(), before_);
    } catch (const c10::Error& failure) {
      // Another exception ended the scope, and is reported.
      TORCH_WARN("the streams of a recording cannot be ordered: ", failure.what_without_backtrace());
    }
  }
}

void SideStreamScope::end() {
  current_.reset();
  recordings_.order(recordings_.side_stream(), before_);
}

}  // namespace sconce
