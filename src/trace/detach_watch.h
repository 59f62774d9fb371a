// DetachWatch: whether code detaches a tensor of a trace in place.
#pragma once

#include <ATen/record_function.h>

namespace sconce {

// While one lives, this thread's calls of aten::detach_ are told to its tracer. Autograd's kernel does all of it, so that no
// tracer sees the operator.
class DetachWatch {
 public:
  DetachWatch();
  ~DetachWatch();
  DetachWatch(const DetachWatch&) = delete;
  DetachWatch& operator=(const DetachWatch&) = delete;

 private:
  const at::CallbackHandle handle_;
};

}  // namespace sconce
