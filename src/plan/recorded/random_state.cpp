#include "plan/recorded/random_state.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>

namespace sconce {

RecordedDraws RecordedRandomState::place(c10::Device device) {
  const c10::InferenceMode normal(false);
  state_ = at::empty({2}, at::TensorOptions(at::kLong).device(device));
  return {.state = static_cast<const uint64_t*>(state_.const_data_ptr())};
}

void RecordedRandomState::replay(Recording& recording, DeviceRuntime& runtime, c10::Stream stream) const {
  if (drawn_ == 0) {
    recording.replay(stream);
    return;
  }
  const c10::DeviceIndex device = stream.device_index();
  RandomState state = runtime.draw(device, drawn_);
  auto restore = c10::make_scope_exit([&] { runtime.put_back(device, state, drawn_); });
  // The driver takes so few bytes before the call returns.
  state_.copy_(at::from_blob(&state, {2}, at::kLong), /*non_blocking=*/true);
  recording.replay(stream);
  restore.release();
}

}  // namespace sconce
