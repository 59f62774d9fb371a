// Operators that LibTorch has for GPUs alone.
#pragma once

#include <torch/library.h>

namespace sconce::testing {

// While it lives, these operators have kernels for the CPU, from other operators: what LibTorch's CUDA convolutions by
// channel and recurrent cells without cuDNN call. The formulas are those of `torch.nn.LSTM` and `torch.nn.GRU` in PyTorch's
// documentation, and their derivatives.
class OperatorsOfGpus {
 public:
  OperatorsOfGpus();

  // Returns whether it is one of them: as LibTorch's kernels for GPUs, they take no tensor of another device.
  static bool contain(const c10::OperatorHandle& op);

 private:
  torch::Library operators_{torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__};
};

}  // namespace sconce::testing
