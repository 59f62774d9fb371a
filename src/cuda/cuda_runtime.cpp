#include "cuda/cuda_runtime.h"

#include "base/environment.h"
#include "cuda/capture_session.h"
#include "cuda/kept_code.h"
#include "cuda/loaded_module.h"
#include "cuda/real_driver.h"
#include "plan/device/libtorch_cuda.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace sconce::cuda {
namespace {

void check(const Expected<void>& status) { TORCH_CHECK(status, "the CUDA driver failed (", status.refusal().reason, ")"); }

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(Driver& driver, TorchBridge& bridge, CUcontext context, bool is_timed)
      : driver_(driver), bridge_(bridge), context_(context) {
    const ContextScope current(driver_, context_);
    check(current.status());
    const RelaxedMode relaxed(driver_);
    check(driver_.create_event(is_timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING, &event_));
  }
  ~CudaEvent() override {
    const ContextScope current(driver_, context_);
    ignore(driver_.destroy_event(event_));
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(c10::Stream stream) override {
    const ContextScope current(driver_, context_);
    check(driver_.record_event(event_, bridge_.handle(stream)));
  }
  void block(c10::Stream stream) override {
    const ContextScope current(driver_, context_);
    check(driver_.stream_wait_event(bridge_.handle(stream), event_));
  }
  void wait() override { check(driver_.synchronize_event(event_)); }
  bool done() override {
    const auto done = driver_.query_event(event_);
    TORCH_CHECK(done, "the CUDA driver failed (", done.refusal().reason, ")");
    return *done;
  }
  double seconds_since(DeviceEvent& earlier) override {
    float milliseconds = 0;
    check(driver_.elapsed_milliseconds(dynamic_cast<CudaEvent&>(earlier).event_, event_, &milliseconds));
    return milliseconds * 1e-3;
  }

 private:
  Driver& driver_;
  TorchBridge& bridge_;
  const CUcontext context_;
  CUevent event_ = nullptr;
};

class CudaRuntime final : public DeviceRuntime {
 public:
  CudaRuntime(std::shared_ptr<Driver> driver, std::shared_ptr<TorchBridge> bridge, NvrtcPlaces nvrtc,
              std::string why_unavailable)
      : driver_(std::move(driver)),
        bridge_(std::move(bridge)),
        nvrtc_places_(std::move(nvrtc)),
        why_unavailable_(std::move(why_unavailable)) {
    if (driver_ != nullptr && bridge_ != nullptr) {
      const Expected<void> status = find_devices();
      if (!status) {
        devices_.clear();
        why_unavailable_ = "no NVIDIA GPU can be used (" + status.refusal().reason + ")";
      } else if (devices_.empty()) {
        why_unavailable_ = "the NVIDIA driver reports no GPU";
      }
    }
  }
  ~CudaRuntime() override {
    for (const c10::Stream stream : free_streams_) {
      ignore(driver_->destroy_stream(bridge_->handle(stream)));
    }
    for (const Device& device : devices_) {
      if (device.context != nullptr) {
        ignore(driver_->release_primary_context(device.handle));
      }
    }
  }

  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  int device_count() const override { return int(devices_.size()); }
  const std::string& why_unavailable() const override { return why_unavailable_; }
  std::string name(c10::DeviceIndex device) const override { return at(device).name; }
  std::string architecture(c10::DeviceIndex device) const override { return at(device).architecture; }
  DeviceLimits limits(c10::DeviceIndex device) const override { return at(device).limits; }

  size_t used_bytes(c10::DeviceIndex device) override {
    const ContextScope current(*driver_, context(device));
    check(current.status());
    size_t free_bytes = 0;
    size_t all_bytes = 0;
    check(driver_->memory_info(&free_bytes, &all_bytes));
    return all_bytes - free_bytes;
  }
  void synchronize(c10::DeviceIndex device) override {
    const ContextScope current(*driver_, context(device));
    check(current.status());
    check(driver_->synchronize_context());
  }
  c10::Stream current_stream(c10::DeviceIndex device) override { return bridge_of(device).current_stream(device); }
  c10::Stream side_stream(c10::DeviceIndex device) override { return bridge_of(device).side_stream(device); }
  c10::Stream take_stream(c10::DeviceIndex device) override {
    {
      const std::lock_guard<std::mutex> lock(streams_mutex_);
      const auto found = std::find_if(free_streams_.begin(), free_streams_.end(),
                                      [&](c10::Stream stream) { return stream.device_index() == device; });
      if (found != free_streams_.end()) {
        const c10::Stream stream = *found;
        free_streams_.erase(found);
        return stream;
      }
    }
    const ContextScope current(*driver_, context(device));
    check(current.status());
    const RelaxedMode relaxed(*driver_);
    CUstream stream = nullptr;
    check(driver_->create_stream(CU_STREAM_NON_BLOCKING, &stream));
    return bridge_->stream_of(stream, device);
  }
  void give_back(c10::Stream stream) override {
    const std::lock_guard<std::mutex> lock(streams_mutex_);
    free_streams_.push_back(stream);
  }
  c10::Stream exchange_current_stream(c10::Stream stream) override {
    return bridge_of(stream.device_index()).exchange_stream(stream);
  }
  std::unique_ptr<DeviceEvent> make_event(c10::DeviceIndex device, bool is_timed) override {
    return std::make_unique<CudaEvent>(*driver_, *bridge_, context(device), is_timed);
  }

  bool compiles_text() const override { return true; }
  Expected<std::string> compile(const std::string& text, const std::string& architecture) override {
    std::call_once(nvrtc_once_, [&] { nvrtc_ = open_nvrtc(nvrtc_places_); });
    if (!*nvrtc_) {
      return nvrtc_->refusal();
    }
    return compile_or_find(***nvrtc_, FileCache(nvrtc_places_.cache, ".cubin"), text, architecture, {"--fmad=false"});
  }

  Expected<std::shared_ptr<DeviceModule>> load_module(c10::DeviceIndex device, const std::string& machine_code) override {
    return load_cubin(*driver_, context(device), machine_code);
  }

  void launch(const DeviceKernel& kernel, const LaunchShape& shape, c10::Stream stream,
              std::span<void* const> arguments) override {
    const ContextScope current(*driver_, context(stream.device_index()));
    check(current.status());
    const Expected<void> status = cuda::launch(*driver_, kernel, shape, bridge_->handle(stream), arguments);
    TORCH_CHECK(status, "the kernel ", kernel.name(), " cannot be launched (", status.refusal().reason, ")");
  }

  std::optional<CapturedWork> last_captured(c10::Stream stream) override {
    const ContextScope current(*driver_, context(stream.device_index()));
    check(current.status());
    CapturedWork last;
    CUgraphNode node = nullptr;
    check(driver_->last_captured(bridge_->handle(stream), &last.capture, &node));
    last.node = node;
    return node == nullptr ? std::nullopt : std::optional(last);
  }
  void change_launch(const CapturedWork& launch, const DeviceKernel& kernel, const LaunchShape& shape,
                     c10::DeviceIndex device, std::span<void* const> arguments) override {
    const ContextScope current(*driver_, context(device));
    check(current.status());
    const Expected<void> status =
        cuda::change_launch(*driver_, static_cast<CUgraphNode>(launch.node), kernel, shape, arguments);
    TORCH_CHECK(status, "the kernel ", kernel.name(), " cannot be captured (", status.refusal().reason, ")");
  }

  void copy(void* to, const void* from, size_t bytes, c10::Stream stream) override {
    const ContextScope current(*driver_, context(stream.device_index()));
    check(current.status());
    check(driver_->copy_on_device(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes,
                                  bridge_->handle(stream)));
  }

  void copy_from_host(void* to, const void* from, size_t bytes, c10::Stream stream) override {
    const ContextScope current(*driver_, context(stream.device_index()));
    check(current.status());
    check(driver_->copy_to_device(reinterpret_cast<CUdeviceptr>(to), from, bytes, bridge_->handle(stream)));
  }

  RandomState draw(c10::DeviceIndex device, uint64_t numbers) override { return bridge_of(device).draw(device, numbers); }
  void put_back(c10::DeviceIndex device, const RandomState& state, uint64_t numbers) override {
    bridge_of(device).put_back(device, state, numbers);
  }
  c10::intrusive_ptr<c10d::Backend> make_exchange(c10::intrusive_ptr<c10d::Store> store, int rank, int world,
                                                  std::chrono::milliseconds timeout) override {
    return bridge_of(0).make_exchange(std::move(store), rank, world, timeout);
  }

  bool captures() const override { return true; }
  std::shared_ptr<CapturePool> make_capture_pool(c10::DeviceIndex device) override {
    return std::make_shared<CudaPool>(bridge_of(device), device);
  }
  bool is_capturing(c10::Stream stream) override {
    const ContextScope current(*driver_, context(stream.device_index()));
    check(current.status());
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    uint64_t id = 0;
    // The driver does not tell it of the default stream while a stream that waits for that one is captured.
    return !driver_->capture_info(bridge_->handle(stream), &status, &id) || status != CU_STREAM_CAPTURE_STATUS_NONE;
  }
  Expected<std::unique_ptr<CaptureSession>> begin_capture(c10::Stream stream, std::shared_ptr<CapturePool> pool) override {
    return begin_session(*driver_, *bridge_, context(stream.device_index()), stream, std::move(pool));
  }

 private:
  struct Device {
    CUdevice handle = 0;
    std::string name;
    std::string architecture;
    DeviceLimits limits;
    mutable std::once_flag retained;
    mutable CUcontext context = nullptr;  // LibTorch's, retained when first used: it costs hundreds of megabytes on the GPU
  };

  Expected<void> find_devices() {
    int count = 0;
    Expected<void> status = driver_->device_count(&count);
    for (int ordinal = 0; status && ordinal < count; ++ordinal) {
      Device& device = devices_.emplace_back();
      status = driver_->device(ordinal, &device.handle);
      if (status) {
        status = driver_->device_name(device.handle, &device.name);
      }
      const auto attribute = [&](CUdevice_attribute name) {
        int value = 0;
        if (status) {
          status = driver_->device_attribute(name, device.handle, &value);
        }
        return static_cast<uint32_t>(value);
      };
      const uint32_t major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
      const uint32_t minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
      device.architecture = "sm_" + std::to_string(major) + std::to_string(minor);
      device.limits = {.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                       .multiprocessor_threads = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
                       .warp_threads = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
                       .block_threads = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                       .shared_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)};
    }
    return status;
  }

  const Device& at(c10::DeviceIndex device) const {
    TORCH_CHECK(device >= 0 && size_t(device) < devices_.size(), "there is no device cuda:", int(device), ": ",
                devices_.empty() ? why_unavailable_ : "this machine has " + std::to_string(devices_.size()));
    return devices_[size_t(device)];
  }

  TorchBridge& bridge_of(c10::DeviceIndex device) const {
    at(device);
    return *bridge_;
  }

  CUcontext context(c10::DeviceIndex index) const {
    const Device& device = at(index);
    std::call_once(device.retained, [&] { check(driver_->retain_primary_context(device.handle, &device.context)); });
    return device.context;
  }

  const std::shared_ptr<Driver> driver_;
  const std::shared_ptr<TorchBridge> bridge_;
  const NvrtcPlaces nvrtc_places_;
  std::deque<Device> devices_;  // a once_flag cannot be moved
  std::string why_unavailable_;
  std::mutex streams_mutex_;
  // That were given back. They stay until the end: LibTorch's allocator has memory for each.
  std::vector<c10::Stream> free_streams_;
  std::once_flag nvrtc_once_;
  std::optional<Expected<std::unique_ptr<Nvrtc>>> nvrtc_;
};

}  // namespace

std::unique_ptr<DeviceRuntime> make_cuda_runtime(std::shared_ptr<Driver> driver, std::shared_ptr<TorchBridge> bridge,
                                                 NvrtcPlaces nvrtc, std::string why_unavailable) {
  return std::make_unique<CudaRuntime>(std::move(driver), std::move(bridge), std::move(nvrtc), std::move(why_unavailable));
}

std::unique_ptr<DeviceRuntime> make_cuda_runtime() {
  const NvrtcPlaces nvrtc{environment().nvrtc, nvrtc_directories_of_libtorch(libtorch_directory()),
                          environment().kernel_cache};
  auto driver = open_driver();
  if (!driver) {
    return make_cuda_runtime(nullptr, nullptr, nvrtc, driver.refusal().reason);
  }
  if (const Expected<void> started = (*driver)->init(); !started) {
    return make_cuda_runtime(nullptr, nullptr, nvrtc, "the NVIDIA driver does not start (" + started.refusal().reason + ")");
  }
  const auto loaded = load_cuda_early();
  auto bridge = loaded ? make_torch_bridge() : loaded.refusal();
  if (!bridge) {
    return make_cuda_runtime(std::move(*driver), nullptr, nvrtc, bridge.refusal().reason);
  }
  return make_cuda_runtime(std::move(*driver), std::move(*bridge), nvrtc);
}

}  // namespace sconce::cuda

// The only symbol that libsconce looks up in this library (plan/device/device.cpp).
extern "C" __attribute__((visibility("default"))) sconce::DeviceRuntime* sconce_cuda_runtime(int interface_version,
                                                                                             std::string* reason) {
  if (interface_version != sconce::kDeviceInterfaceVersion) {
    *reason = "it is of another build of sconce: device interface " + std::to_string(sconce::kDeviceInterfaceVersion) +
              ", wanted " + std::to_string(interface_version);
    return nullptr;
  }
  // Never destroyed: plans that are destroyed at exit still unload their kernels through it.
  static sconce::DeviceRuntime* const runtime = sconce::cuda::make_cuda_runtime().release();
  return runtime;
}
