// The defaults of DeviceRuntime.
#include "base/assert.h"
#include "plan/device/device.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace sconce {
namespace {

// A point in the work of a device that has done it all.
class PassedEvent final : public DeviceEvent {
 public:
  void record(c10::Stream /*stream*/) override { time_ = std::chrono::steady_clock::now(); }
  void block(c10::Stream /*stream*/) override {}
  void wait() override {}
  bool done() override { return true; }
  double seconds_since(DeviceEvent& earlier) override {
    return std::chrono::duration<double>(time_ - static_cast<PassedEvent&>(earlier).time_).count();
  }

 private:
  std::chrono::steady_clock::time_point time_;
};

std::string type_name(const DeviceRuntime& runtime) { return c10::DeviceTypeName(runtime.type(), /*lower_case=*/true); }

c10::Stream default_stream(const DeviceRuntime& runtime, c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::DEFAULT, c10::Device(runtime.type(), device));
}

}  // namespace

const std::string& DeviceRuntime::why_unavailable() const {
  static const std::string none;
  return none;
}

std::string DeviceRuntime::name(c10::DeviceIndex device) const { return c10::Device(type(), device).str(); }

c10::Stream DeviceRuntime::current_stream(c10::DeviceIndex device) { return default_stream(*this, device); }
c10::Stream DeviceRuntime::side_stream(c10::DeviceIndex device) { return default_stream(*this, device); }
c10::Stream DeviceRuntime::take_stream(c10::DeviceIndex device) { return default_stream(*this, device); }
c10::Stream DeviceRuntime::exchange_current_stream(c10::Stream stream) { return stream; }
std::unique_ptr<DeviceEvent> DeviceRuntime::make_event(c10::DeviceIndex /*device*/, bool /*is_timed*/) {
  return std::make_unique<PassedEvent>();
}

std::shared_ptr<const KernelBackend> DeviceRuntime::make_nests(c10::DeviceIndex /*device*/, bool /*is_blocking*/) {
  return nullptr;
}
Expected<std::string> DeviceRuntime::compile(const std::string& /*text*/, const std::string& /*architecture*/) {
  return Refusal::because("nothing compiles text for the device " + type_name(*this));
}
Expected<std::shared_ptr<DeviceModule>> DeviceRuntime::load_module(c10::DeviceIndex /*device*/,
                                                                   const std::string& /*machine_code*/) {
  return Refusal::because("the device " + type_name(*this) + " loads no machine code");
}
void DeviceRuntime::launch(const DeviceKernel& kernel, const LaunchShape& /*shape*/, c10::Stream /*stream*/,
                           std::span<void* const> /*arguments*/) {
  SCONCE_ASSERT(false, "the device ", type_name(*this), " launches no kernel: ", kernel.name());
}

std::shared_ptr<CapturePool> DeviceRuntime::make_capture_pool(c10::DeviceIndex /*device*/) {
  return std::make_shared<CapturePool>();
}
Expected<std::unique_ptr<CaptureSession>> DeviceRuntime::begin_capture(c10::Stream /*stream*/,
                                                                       std::shared_ptr<CapturePool> /*pool*/) {
  return Refusal::because("the device " + type_name(*this) + " captures nothing");
}
void DeviceRuntime::change_launch(const CapturedWork& /*launch*/, const DeviceKernel& /*kernel*/,
                                  const LaunchShape& /*shape*/, c10::DeviceIndex /*device*/,
                                  std::span<void* const> /*arguments*/) {
  SCONCE_ASSERT(false, "the device ", type_name(*this), " captures nothing");
}
void DeviceRuntime::copy(void* /*to*/, const void* /*from*/, size_t /*bytes*/, c10::Stream /*stream*/) {
  SCONCE_ASSERT(false, "the device ", type_name(*this), " captures nothing");
}
void DeviceRuntime::copy_from_host(void* /*to*/, const void* /*from*/, size_t /*bytes*/, c10::Stream /*stream*/) {
  SCONCE_ASSERT(false, "the device ", type_name(*this), " captures nothing");
}

RandomState DeviceRuntime::draw(c10::DeviceIndex /*device*/, uint64_t /*numbers*/) {
  SCONCE_ASSERT(false, "no kernel for the device ", type_name(*this), " draws");
}
void DeviceRuntime::put_back(c10::DeviceIndex /*device*/, const RandomState& /*state*/, uint64_t /*numbers*/) {}

c10::intrusive_ptr<c10d::Backend> DeviceRuntime::make_exchange(c10::intrusive_ptr<c10d::Store> /*store*/, int /*rank*/,
                                                               int /*world*/, std::chrono::milliseconds /*timeout*/) {
  TORCH_CHECK(false, "ranks cannot exchange tensors on ", type_name(*this), " devices");
}

}  // namespace sconce
