#include "tests/support/cuda_registrations.h"

#include <memory>
#include <utility>

namespace sconce::testing {
namespace {

struct Kernel final : c10::OperatorKernel {
  explicit Kernel(CudaRegistrations::Run action) : run(std::move(action)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) { run(op, *stack); }
  const CudaRegistrations::Run run;
};

auto& guard_of_cuda() { return c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)]; }

torch::CppFunction kernel_of(const CudaRegistrations::Run& run) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(run));
}

}  // namespace

CudaRegistrations::CudaRegistrations(c10::Allocator& allocator, const c10::impl::DeviceGuardImplInterface& guard,
                                     const Run& run)
    : guard_before_(guard_of_cuda().exchange(&guard)) {
  c10::SetAllocator(c10::kCUDA, &allocator);
  operators_.fallback(kernel_of(run));
  // It has one kernel for all devices, which asks for the tables of the device.
  copies_.impl("copy_", kernel_of(run));
}

CudaRegistrations::~CudaRegistrations() {
  guard_of_cuda().store(guard_before_);
  c10::SetAllocator(c10::kCUDA, nullptr);
}

}  // namespace sconce::testing
