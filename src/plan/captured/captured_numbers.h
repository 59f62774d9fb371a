// CapturedNumbers: the numbers that the kernels of one capture read in the device's memory, other ones in each replay.
#pragma once

#include "plan/device/device.h"
#include "plan/prepared/kernel.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace sconce {

// Operands that are numbers, and the state of LibTorch's generator if kernels draw random numbers.
class CapturedNumbers {
 public:
  // Makes memory for so many operands of 8 bytes each, and for the generator's state.
  void place(c10::Device device, size_t operands, bool draws);
  void* operand(size_t index) const { return memory_.mutable_data_ptr<int64_t>() + index; }
  CapturedDraws draws() const;
  // Takes what the captured kernels have drawn.
  void keep(const CapturedDraws& draws) { drawn_ = draws.drawn; }
  void reset() { *this = CapturedNumbers(); }

  // Replays the capture with these operands, as their bits, and moves the generator on as the operators would. The
  // generator stays as it was if the device has not got the work.
  void replay(Capture& capture, DeviceRuntime& runtime, c10::Stream stream, std::span<const int64_t> operands) const;

 private:
  at::Tensor memory_;  // the operands; then seed and offset
  size_t operands_ = 0;
  uint64_t drawn_ = 0;
};

}  // namespace sconce
