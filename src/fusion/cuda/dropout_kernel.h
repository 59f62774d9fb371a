// The kernel of aten::native_dropout and aten::bernoulli_ on a GPU, for captures.
#pragma once

#include "fusion/cuda/device_kernel_cache.h"
#include "plan/prepared/group.h"

#include <cstdint>
#include <string>

namespace sconce {

// The parameter of the kernel: DropoutCall of dropout.inc.
struct DropoutParameter {
  const void* input;  // null: of bernoulli_
  void* result;       // or null
  void* mask;         // or null
  const uint64_t* state;
  uint64_t drawn;
  int64_t elements;
  int64_t threads;
  int64_t vector;
  double kept;
};

// Returns the text of the kernel for elements of the dtype, which is floating, that are taken so many at a time. `is_wide`:
// there are more than 2^30.
std::string dropout_text(c10::ScalarType dtype, int64_t vector, bool is_wide);

// How LibTorch draws the numbers of so many elements that begin at an address of 16 bytes.
struct DropoutPlan {
  int64_t threads;  // of its grid
  int64_t vector;   // neighbors that a thread takes
  uint64_t drawn;   // what it adds to the generator's offset
};
DropoutPlan plan_dropout(int64_t elements, size_t element_bytes, const DeviceLimits& limits);

// Returns the kernel of a group that is one node, of which `may_draw_by_kernel` is true. It draws the numbers that LibTorch
// draws. It runs in captures alone: `arguments.draws()` says where the generator's state is.
KernelPtr make_dropout_kernel(const NodeGroup& group, DeviceKernelCache& kernels, c10::DeviceIndex device, bool is_blocking);

}  // namespace sconce
