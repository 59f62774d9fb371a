// A second kind of device, which shares nothing with CUDA: LibTorch's PrivateUse1 over memory of the host, which computes at
// once, has kernels of its own, and records nothing.
#pragma once

#include "plan/device/device.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <memory>

namespace sconce::testing {

const c10::Device kToy(c10::kPrivateUse1, 0);

// While it lives, LibTorch has one such device, whose operators are the CPU's. One at a time; no tensor may outlive it.
class ToyDevice {
 public:
  ToyDevice();
  ~ToyDevice();
  ToyDevice(const ToyDevice&) = delete;
  ToyDevice& operator=(const ToyDevice&) = delete;

 private:
  std::shared_ptr<void> registrations_;
};

// The runtime of the device. It overrides no more than it must.
class ToyRuntime final : public DeviceRuntime {
 public:
  // `has_kernels`: groups of nodes run by an interpreter of kernel programs.
  explicit ToyRuntime(bool has_kernels) : has_kernels_(has_kernels) {}
  c10::DeviceType type() const override { return kToy.type(); }
  int device_count() const override { return 1; }
  std::shared_ptr<const KernelBackend> make_nests(c10::DeviceIndex device, bool is_blocking) override;

  size_t kernels_run() const { return kernels_run_; }

 private:
  const bool has_kernels_;
  std::atomic<size_t> kernels_run_{0};
};

}  // namespace sconce::testing
