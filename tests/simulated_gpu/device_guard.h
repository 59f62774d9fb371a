// How LibTorch asks for the streams and events of the simulated GPU.
#pragma once

#include "tests/simulated_driver/fake_driver.h"
#include "tests/simulated_driver/fake_torch_bridge.h"
#include "tests/simulated_gpu/device_memory.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

namespace sconce::testing {

// Knows one device, of which all streams are the default one while no GPU is simulated. Registered when the process starts
// and never removed: autograd makes its threads for devices once, at its first use.
class SimulatedDeviceGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  struct Gpu {
    cuda::FakeDriver& driver;
    cuda::FakeTorchBridge& bridge;
    DeviceMemory& memory;
  };
  static SimulatedDeviceGuard& of_process();
  // Serves this GPU from now on; with null, none.
  void serve(Gpu* gpu) { gpu_ = gpu; }
  bool serves() const { return gpu_ != nullptr; }

  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Device exchangeDevice(c10::Device device) const override;
  c10::Device getDevice() const override { return {c10::kCUDA, 0}; }
  void setDevice(c10::Device device) const override { exchangeDevice(device); }
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override;
  c10::Stream getDefaultStream(c10::Device device) const override;
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const override;
  c10::Stream exchangeStream(c10::Stream stream) const override;
  void* getStreamNativeHandle(c10::Stream stream) const override { return gpu().bridge.handle(stream); }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag) const override;
  void block(void* event, const c10::Stream& stream) const override;
  bool queryEvent(void* event) const override;
  void destroyEvent(void* event, c10::DeviceIndex device) const noexcept override;
  void synchronizeStream(const c10::Stream& stream) const override;
  void synchronizeEvent(void* event) const override;
  void synchronizeDevice(c10::DeviceIndex device) const override;
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override;

 private:
  Gpu& gpu() const;

  std::atomic<Gpu*> gpu_{nullptr};
};

}  // namespace sconce::testing
