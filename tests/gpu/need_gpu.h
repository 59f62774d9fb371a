// For tests that run on a GPU and skip, with the reason, where there is none.
#pragma once

#include "plan/device/device.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <string>

namespace sconce {

// Returns the CUDA runtime, which has at least one device. Ask before anything else in the process: it loads LibTorch's
// CUDA half (rule R9).
inline Expected<DeviceRuntime*> gpu_runtime() {
  auto runtime = find_device_runtime(c10::DeviceType::CUDA);
  return runtime && (*runtime)->device_count() == 0 ? Refusal::because((*runtime)->why_unavailable()) : runtime;
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto runtime = gpu_runtime();
    if (!runtime) {
      GTEST_SKIP() << runtime.refusal().reason;
    }
    runtime_ = *runtime;
    // Tests compare with the CPU, whose products have all bits of float32.
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setAllowTF32CuBLAS(false);
  }
  DeviceRuntime* runtime_ = nullptr;
};

}  // namespace sconce
