#include "tests/devices/toy_device.h"

#include "tests/support/host_call.h"

#include <ATen/ATen.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <utility>

namespace sconce::testing {
namespace {

// One device, one stream.
class ToyGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kToy.type(); }
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return kToy; }
  c10::Device getDevice() const override { return kToy; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::Stream getStream(c10::Device /*device*/) const override { return c10::Stream(c10::Stream::DEFAULT, kToy); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
const c10::impl::DeviceGuardImplRegistrar registrar(c10::kPrivateUse1, new ToyGuard());

// Answers what autograd's engine asks an accelerator.
class ToyHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return at::globalContext().defaultGenerator(at::kCPU);
  }
};
const bool has_hooks = [] {
  c10::register_privateuse1_backend("toy");
  at::RegisterPrivateUse1HooksInterface(new ToyHooks());
  return true;
}();

struct CallOnHost final : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    call_on_host(op, *stack, {.device = kToy.type(), .place = storage_over});
  }
};

struct ToyRegistrations {
  ToyRegistrations() {
    c10::SetAllocator(kToy.type(), &memory);
    operators.fallback(torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CallOnHost>()));
    // It has one kernel for all devices, which asks for the tables of the device.
    copies.impl("copy_", torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CallOnHost>()));
  }
  ~ToyRegistrations() { c10::SetAllocator(kToy.type(), nullptr); }

  HostAllocator memory{[] { return kToy; }};
  torch::Library operators{torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__};
  torch::Library copies{torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__};
};

}  // namespace

ToyDevice::ToyDevice() : registrations_(std::make_shared<ToyRegistrations>()) {}
ToyDevice::~ToyDevice() = default;

}  // namespace sconce::testing
