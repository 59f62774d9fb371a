// A GPU simulated on the CPU, on which LibTorch's operators and sconce's kernels run, and CUDA graphs of both.
#pragma once

#include "fusion/cuda/device_kernel_cache.h"
#include "plan/device/device.h"
#include "tests/simulated_driver/fake_driver.h"
#include "tests/simulated_driver/fake_torch_bridge.h"
#include "tests/simulated_gpu/device_guard.h"
#include "tests/simulated_gpu/device_memory.h"
#include "tests/simulated_gpu/operators.h"
#include "tests/simulated_gpu/operators_of_gpus.h"
#include "tests/support/cuda_registrations.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <string>

namespace sconce::testing {

// While it lives, the process has the device cuda:0: LibTorch's, and sconce's. The device runtime is the real one, over a
// simulated driver, whose rules for streams and captures apply. Kernels run when their stream is waited for (fake_driver.h),
// operators as operators.h says. So a missing wait shows as a wrong result, and so does a recorded address that is another
// tensor's by now.
//
// One at a time. Plans must be destroyed before it; tensors may be freed later. Not for processes that load LibTorch's CUDA
// library.
class SimulatedGpu {
 public:
  // How kernels run: statement by statement, which sees what threads do wrong together (loop_interpreter.h), or the printed
  // text (printed_kernels.h).
  enum class Kernels : uint8_t { kStatements, kPrinted };

  // Kernels are printed if the environment has SCONCE_PRINTED_KERNELS.
  SimulatedGpu() : SimulatedGpu(simulated_compiler()) {}
  explicit SimulatedGpu(Kernels kernels) : SimulatedGpu(simulated_compiler(), kernels) {}
  // With another library in the place of NVRTC.
  explicit SimulatedGpu(const std::string& compiler) : SimulatedGpu(compiler, default_kernels()) {}
  ~SimulatedGpu();
  SimulatedGpu(const SimulatedGpu&) = delete;
  SimulatedGpu& operator=(const SimulatedGpu&) = delete;

  cuda::FakeDriver& driver() { return *driver_; }
  cuda::FakeTorchBridge& bridge() { return *bridge_; }
  DeviceRuntime& runtime() { return *runtime_; }
  DeviceKernelCache& kernels();  // the process's, for this runtime
  const DeviceMemory& memory() const { return *memory_; }

  // Returns a copy of a CPU tensor on the device.
  at::Tensor tensor(const at::Tensor& values);
  // Returns such a copy which is poison until the current stream has done its work so far.
  at::Tensor late_tensor(const at::Tensor& values);
  // Returns a copy of a tensor on the CPU, after the work of the current stream.
  at::Tensor values(const at::Tensor& tensor);

  size_t operators_run() const { return operators_->count(); }
  // Returns how often a function of the driver was called: "launch_kernel", "launch_graph".
  size_t driver_calls(const std::string& function) const;

 private:
  SimulatedGpu(const std::string& compiler, Kernels kernels);
  static std::string simulated_compiler();
  static Kernels default_kernels();

  std::shared_ptr<cuda::FakeDriver> driver_;
  std::shared_ptr<cuda::FakeTorchBridge> bridge_;
  const std::shared_ptr<DeviceMemory> memory_;
  SimulatedDeviceGuard::Gpu served_;
  std::unique_ptr<SimulatedOperators> operators_;
  std::unique_ptr<CudaRegistrations> registrations_;
  const OperatorsOfGpus operators_of_gpus_;
  std::unique_ptr<DeviceRuntime> runtime_;
  std::unique_ptr<DeviceRuntimeInPlace> in_place_;
};

}  // namespace sconce::testing
