// A process that uses no GPU pays for none: it maps no library of CUDA but those that LibTorch's CPU library is linked to.
#include "tests/training/two_trainings.h"

#include "plan/device/device.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

// Returns which of the libraries this process maps: "libcuda.so.1 libsconce_cuda.so ".
std::string mapped(const std::vector<std::string>& libraries) {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::string file = line.substr(line.rfind('/') + 1);
    for (const std::string& library : libraries) {
      if (file.starts_with(library)) {
        found.insert(file);
      }
    }
  }
  std::string text;
  for (const std::string& file : found) {
    text += file + " ";
  }
  return text;
}

std::string mapped_for_cuda() {
  return mapped({"libcuda.so", "libtorch_cuda", "libc10_cuda", "libnvrtc", "libsconce_cuda", "libcublas", "libcudnn"});
}

// Each case runs in a new process ("threadsafe" death tests start this program again).
class CpuProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(CpuProcessTest, MapsNoCudaLibraryAfterItRanAndTrainedAModel) {
  EXPECT_EXIT(
      {
        TwoTrainings both(two_layers(kMlp), adam);
        for (uint64_t step = 0; step < 4; ++step) {
          both.train(/*batch=*/5, step);
        }
        const Module module = accelerate(two_layers(kMlp), Options().compile(CompileMode::kBlocking));
        const c10::NoGradGuard no_grad;
        for (int call = 0; call < 4; ++call) {
          module.forward({at::ones({5, 8})});
        }
        std::cerr << "by plan: " << both.step().explain().by_plan << "; CPU: " << mapped({"libtorch_cpu"})
                  << "; CUDA: " << mapped_for_cuda() << "." << std::endl;
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "by plan: 3; CPU: libtorch_cpu.so ; CUDA: \\.");
}

TEST_F(CpuProcessTest, MapsTheCudaLibraryOnceItIsAskedFor) {
  if (!find_device_runtime(c10::DeviceType::CUDA)) {
    GTEST_SKIP() << "there is no libsconce_cuda";
  }
  EXPECT_EXIT(
      {
        find_device_runtime(c10::DeviceType::CUDA).value_or_throw("it was found before");
        std::cerr << mapped_for_cuda() << std::endl;
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "libsconce_cuda.so");
}

}  // namespace
}  // namespace sconce::testing
