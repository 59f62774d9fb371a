// RecordingRun: the state that steps read while their run is recorded.
#pragma once

#include "base/flat_map.h"
#include "plan/frame.h"

#include <cstdint>

namespace sconce {

// The random numbers that kernels of a recording draw.
struct RecordedDraws {
  const uint64_t* state = nullptr;  // on the device: seed and offset of LibTorch's generator before a replay
  uint64_t drawn = 0;               // what the kernels so far add to the offset
};

struct RecordingRun {
  FlatMap<Register, void*> number_memory;  // where on the device kernels read a number; others are part of the recording
  RecordedDraws* draws = nullptr;          // null if no node draws
};

}  // namespace sconce
