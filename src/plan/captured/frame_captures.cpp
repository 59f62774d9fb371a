#include "plan/captured/frame_captures.h"

#include "base/log.h"

#include <c10/util/Exception.h>

namespace sconce {

FrameCaptures::FrameCaptures(DeviceRuntime& runtime, c10::Device device)
    : runtime_(runtime),
      device_(device),
      event_(runtime.make_event(device.index(), /*is_timed=*/false)),
      side_(runtime.take_stream(device.index())) {}

FrameCaptures::~FrameCaptures() {
  end_use();
  ranges_.clear();
  runtime_.give_back(side_);
}

CapturedRange& FrameCaptures::range(const CapturedNode& node) { return ranges_.try_emplace(&node, node).first->second; }

void FrameCaptures::order(c10::Stream earlier, c10::Stream later) {
  event_->record(earlier);
  event_->block(later);
}

void FrameCaptures::begin_use() {
  const c10::Stream now = current_stream();
  if (last_ && *last_ != now) {
    order(*last_, now);
  }
  last_ = now;
}

void FrameCaptures::end_use() noexcept {
  if (!last_) {
    return;
  }
  try {
    event_->record(*last_);
    event_->wait();
  } catch (const c10::Error& failure) {
    log(LogLevel::kWarning,
        c10::str("it is not known whether the GPU has done with captured memory: ", failure.what_without_backtrace()));
  }
  last_.reset();
}

SideStreamScope::SideStreamScope(FrameCaptures& captures) : captures_(captures), before_(captures.current_stream()) {
  captures_.order(before_, captures_.side_stream());
  current_.emplace(captures_.runtime(), captures_.side_stream());
}

SideStreamScope::~SideStreamScope() {
  if (current_) {
    current_.reset();
    try {
      captures_.order(captures_.side_stream(), before_);
    } catch (const c10::Error& failure) {
      // Another exception ended the scope, and is reported.
      log(LogLevel::kWarning, c10::str("the streams of a capture cannot be ordered: ", failure.what_without_backtrace()));
    }
  }
}

void SideStreamScope::end() {
  current_.reset();
  captures_.order(captures_.side_stream(), before_);
}

}  // namespace sconce
