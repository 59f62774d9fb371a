// Operators on the simulated GPU.
#pragma once

#include "tests/simulated_gpu/device_memory.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <cstddef>
#include <memory>

namespace sconce::testing {

// Runs operators by the CPU's kernels, as work of the calling thread's current stream:
//   - on a stream that is not captured, at once, after what the stream was given before. Work of other streams runs only if
//   the
//     stream waits for it;
//   - on a captured stream, at each replay. It reads and writes the memory that the operands and results had in the capture,
//     whatever is there by then. Until then, results are poison;
//   - on a captured stream, if LibTorch's operator would wait for the GPU or compute random numbers: never. It invalidates
//   the
//     capture and throws.
// Dropout and `bernoulli_(p)` draw the numbers of the GPU's generator, as LibTorch's kernels do. Other random operators draw
// the CPU's.
class SimulatedOperators {
 public:
  SimulatedOperators(cuda::FakeDriver& driver, cuda::FakeTorchBridge& bridge, DeviceMemory& memory)
      : driver_(driver), bridge_(bridge), memory_(memory) {}

  void run(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  // Returns the number of operators that ran, but for those in replays.
  size_t count() const { return count_; }

 private:
  void fill(torch::jit::Stack& stack);
  void drop_out(torch::jit::Stack& stack);
  void run_now(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void capture(const c10::OperatorHandle& op, torch::jit::Stack& stack, CUstream stream);
  c10::Storage allocate(size_t bytes);

  cuda::FakeDriver& driver_;
  cuda::FakeTorchBridge& bridge_;
  DeviceMemory& memory_;
  std::atomic<size_t> count_{0};
};

}  // namespace sconce::testing
