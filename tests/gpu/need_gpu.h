// For tests that run on a GPU and skip, with the reason, where there is none.
#pragma once

#include "plan/device/device.h"

#include <gtest/gtest.h>

#include <string>

namespace sconce {

// The CUDA runtime with at least one device, or null with the reason. Ask before anything else in the process: it loads
// LibTorch's CUDA half (rule R9).
inline DeviceRuntime* gpu_runtime(std::string* why_not) {
  const auto runtime = find_device_runtime(c10::DeviceType::CUDA);
  if (!runtime) {
    *why_not = runtime.refusal().reason;
    return nullptr;
  }
  *why_not = (*runtime)->why_unavailable();
  return (*runtime)->device_count() == 0 ? nullptr : *runtime;
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    runtime_ = gpu_runtime(&why_not);
    if (runtime_ == nullptr) {
      GTEST_SKIP() << why_not;
    }
  }
  DeviceRuntime* runtime_ = nullptr;
};

}  // namespace sconce
