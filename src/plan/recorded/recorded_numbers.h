// RecordedNumbers: the numbers that the kernels of one recording read in the device's memory, other ones in each replay.
#pragma once

#include "plan/device/device.h"
#include "plan/prepared/kernel.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace sconce {

// Operands that are numbers, and the state of LibTorch's generator if kernels draw random numbers.
class RecordedNumbers {
 public:
  // Makes memory for so many operands of 8 bytes each, and for the generator's state.
  void place(c10::Device device, size_t operands, bool draws);
  void* operand(size_t index) const { return memory_.mutable_data_ptr<int64_t>() + index; }
  RecordedDraws draws() const;
  // Takes what the recorded kernels have drawn.
  void keep(const RecordedDraws& draws) { drawn_ = draws.drawn; }
  void reset() { *this = RecordedNumbers(); }

  // Replays the recording with these operands, as their bits, and moves the generator on as the operators would. The
  // generator stays as it was if the device has not got the work.
  void replay(Recording& recording, DeviceRuntime& runtime, c10::Stream stream, std::span<const int64_t> operands) const;

 private:
  at::Tensor memory_;  // the operands; then seed and offset
  size_t operands_ = 0;
  uint64_t drawn_ = 0;
};

}  // namespace sconce
