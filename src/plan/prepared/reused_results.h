// ReusedResults: the last small results of a step, which later runs use again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <cstddef>
#include <vector>

namespace sconce {

// A result that may outlive the run, or the trip of a loop, has no slot. To make a small tensor takes longer than to compute
// it, so a frame keeps those that its steps made, and uses one again once nothing else holds it or its memory. To its next
// holder it is a new tensor: none is used again that a holder has changed in place, or given another form, autograd metadata
// or a Python object. Only the CPU's tensors are kept: LibTorch's allocator for another device knows which stream may use
// freed memory again, and a frame does not.
class ReusedResults {
 public:
  // Returns a tensor of the shell's form, on its device. Its elements are not initialized.
  at::Tensor take(const at::Tensor& shell);

 private:
  struct Kept {
    at::Tensor tensor;
    c10::DispatchKeySet keys;  // as it was made
  };
  static bool is_as_made(const Kept& kept, const at::Tensor& shell);

  std::vector<Kept> kept_;  // a ring: the oldest, which is the first that its holders drop, stands at `next_`
  size_t next_ = 0;
};

}  // namespace sconce
