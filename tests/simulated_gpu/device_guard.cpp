#include "tests/simulated_gpu/device_guard.h"

#include "tests/simulated_gpu/generator.h"

#include <ATen/detail/CUDAHooksInterface.h>

#include <memory>

namespace sconce::testing {
namespace {

const CUcontext kContext = reinterpret_cast<CUcontext>(uintptr_t(0x100));

template <typename Value>
Value checked(Expected<Value> outcome) {
  return std::move(outcome).value_or_throw("the simulated driver failed");
}

// Without hooks that report a device, autograd finds no streams.
class CudaHooks final : public at::CUDAHooksInterface {
 public:
  bool hasCUDA() const override { return SimulatedDeviceGuard::of_process().serves(); }
  bool isBuilt() const override { return hasCUDA(); }
  bool isAvailable() const override { return hasCUDA(); }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return hasCUDA(); }
  c10::DeviceIndex deviceCount() const override { return hasCUDA() ? 1 : 0; }
  int getNumGPUs() const override { return deviceCount(); }
  void init() const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex current_device() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return SimulatedGenerator::of_process();
  }
};

const c10::impl::DeviceGuardImplRegistrar registrar(c10::kCUDA, &SimulatedDeviceGuard::of_process());
const bool has_hooks = [] {
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs /*arguments*/) { return std::make_unique<CudaHooks>(); }, c10::REGISTRY_FALLBACK);
  return true;
}();

}  // namespace

SimulatedDeviceGuard& SimulatedDeviceGuard::of_process() {
  static auto* const guard = new SimulatedDeviceGuard();
  return *guard;
}

SimulatedDeviceGuard::Gpu& SimulatedDeviceGuard::gpu() const {
  Gpu* const gpu = gpu_;
  TORCH_CHECK(gpu != nullptr, "no GPU is simulated");
  return *gpu;
}

c10::Device SimulatedDeviceGuard::exchangeDevice(c10::Device device) const {
  TORCH_CHECK(device.index() <= 0, "there is one simulated GPU, and no ", device);
  return getDevice();
}

c10::Stream SimulatedDeviceGuard::getDefaultStream(c10::Device /*device*/) const {
  return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCUDA, 0));
}

c10::Stream SimulatedDeviceGuard::getStream(c10::Device device) const {
  return gpu_ == nullptr ? getDefaultStream(device) : gpu().bridge.current_stream(0);
}

c10::Stream SimulatedDeviceGuard::getStreamFromGlobalPool(c10::Device /*device*/, bool /*is_high_priority*/) const {
  return gpu().bridge.side_stream(0);
}

c10::Stream SimulatedDeviceGuard::exchangeStream(c10::Stream stream) const {
  return gpu_ == nullptr ? getDefaultStream(stream.device()) : gpu().bridge.exchange_stream(stream);
}

void SimulatedDeviceGuard::record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
                                  c10::EventFlag /*flag*/) const {
  const cuda::ContextScope current(gpu().driver, kContext);
  if (*event == nullptr) {
    CUevent made = nullptr;
    checked(gpu().driver.create_event(CU_EVENT_DEFAULT, &made));
    *event = made;
  }
  checked(gpu().driver.record_event(static_cast<CUevent>(*event), gpu().bridge.handle(stream)));
}

void SimulatedDeviceGuard::block(void* event, const c10::Stream& stream) const {
  if (event != nullptr) {
    checked(gpu().driver.stream_wait_event(gpu().bridge.handle(stream), static_cast<CUevent>(event)));
  }
}

bool SimulatedDeviceGuard::queryEvent(void* event) const {
  return event == nullptr || checked(gpu().driver.query_event(static_cast<CUevent>(event)));
}

void SimulatedDeviceGuard::destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept {
  if (event != nullptr && gpu_ != nullptr) {
    cuda::ignore(gpu().driver.destroy_event(static_cast<CUevent>(event)));
  }
}

void SimulatedDeviceGuard::synchronizeStream(const c10::Stream& stream) const {
  checked(gpu().driver.synchronize_stream(gpu().bridge.handle(stream)));
}

void SimulatedDeviceGuard::synchronizeEvent(void* event) const {
  if (event != nullptr) {
    checked(gpu().driver.synchronize_event(static_cast<CUevent>(event)));
  }
}

void SimulatedDeviceGuard::synchronizeDevice(c10::DeviceIndex /*device*/) const {
  const cuda::ContextScope current(gpu().driver, kContext);
  checked(gpu().driver.synchronize_context());
}

void SimulatedDeviceGuard::recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const {
  gpu().memory.record_use(data, gpu().bridge.handle(stream));
}

}  // namespace sconce::testing
