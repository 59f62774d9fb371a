// RecordedRandomState: the random numbers that the kernels of one recording draw.
#pragma once

#include "plan/device/device.h"
#include "plan/prepared/kernel.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sconce {

class RecordedRandomState {
 public:
  // Makes memory on the device where a recording finds the state of LibTorch's generator.
  RecordedDraws place(c10::Device device);
  // Takes what the recorded kernels have drawn.
  void keep(const RecordedDraws& draws) { drawn_ = draws.drawn; }
  void reset() { *this = RecordedRandomState(); }

  // Replays the recording, and moves the generator on as the operators would. The generator stays as it was if the device
  // has not got the work.
  void replay(Recording& recording, DeviceRuntime& runtime, c10::Stream stream) const;

 private:
  at::Tensor state_;  // seed and offset
  uint64_t drawn_ = 0;
};

}  // namespace sconce
