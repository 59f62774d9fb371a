#include "plan/captured/captured_numbers.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/SmallVector.h>

#include <bit>

namespace sconce {

void CapturedNumbers::place(c10::Device device, size_t operands, bool draws) {
  operands_ = operands;
  const size_t count = operands + (draws ? 2 : 0);
  if (count != 0) {
    const c10::InferenceMode normal(false);
    memory_ = at::empty({static_cast<int64_t>(count)}, at::TensorOptions(at::kLong).device(device));
  }
}

CapturedDraws CapturedNumbers::draws() const { return {.state = static_cast<const uint64_t*>(operand(operands_))}; }

void CapturedNumbers::replay(Capture& capture, DeviceRuntime& runtime, c10::Stream stream,
                             std::span<const int64_t> operands) const {
  const c10::DeviceIndex device = stream.device_index();
  c10::SmallVector<int64_t, 8> numbers(operands.begin(), operands.end());
  RandomState state;
  auto restore = c10::make_scope_exit([&] { runtime.put_back(device, state, drawn_); });
  if (drawn_ != 0) {
    state = runtime.draw(device, drawn_);
    numbers.push_back(std::bit_cast<int64_t>(state.seed));
    numbers.push_back(std::bit_cast<int64_t>(state.offset));
  } else {
    restore.release();
  }
  if (!numbers.empty()) {
    runtime.copy_from_host(operand(0), numbers.data(), numbers.size() * sizeof(int64_t), stream);
  }
  capture.replay(stream);
  restore.release();
}

}  // namespace sconce
