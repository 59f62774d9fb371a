// Scratch: memory that a thread keeps from call to call.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>

namespace sconce {

class Scratch {
 public:
  // Returns room for elements of float32. What was in it may be gone.
  float* of(int64_t elements) {
    if (elements_ < elements) {
      elements_ = 0;
      memory_.clear();  // before there is more
      memory_ = c10::GetDefaultCPUAllocator()->allocate(static_cast<size_t>(elements) * sizeof(float));
      elements_ = elements;
    }
    return static_cast<float*>(memory_.get());
  }

 private:
  c10::DataPtr memory_;
  int64_t elements_ = 0;
};

}  // namespace sconce
