// Rule R9: LibTorch's CUDA half must come before ATen looks for it. Whether it did is a state of the process, so each
// case runs in a new one ("threadsafe" death tests start this program again).
#include "plan/device/libtorch_cuda.h"

#include "base/shared_library.h"
#include "cuda/torch_bridge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/Functions.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace sconce {
namespace {

class LibtorchCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    if (!std::filesystem::exists(libtorch_directory() + "/libtorch_cuda.so")) {
      GTEST_SKIP() << "this LibTorch is built without CUDA: no libtorch_cuda.so in " << libtorch_directory();
    }
  }
};

// Prints the outcome and ends the process: 0 when the CUDA half is there.
[[noreturn]] void load_and_exit(Expected<void> (*load)()) {
  const auto loaded = load();
  std::cerr << (loaded ? "loaded" : loaded.refusal().reason) << std::endl;
  std::_Exit(loaded ? 0 : 1);
}

TEST_F(LibtorchCudaTest, ComesInTimeBeforeAnyCallOfAten) {
  EXPECT_EXIT(load_and_exit(load_libtorch_cuda), ::testing::ExitedWithCode(0), "loaded");
}

TEST_F(LibtorchCudaTest, ComesInTimeAfterWorkOnTheCpu) {
  EXPECT_EXIT(
      {
        const at::Tensor sum = at::add(at::ones({2}), at::ones({2}));
        std::cerr << sum.sum().item<float>() << " ";
        load_and_exit(load_libtorch_cuda);
      },
      ::testing::ExitedWithCode(0), "4 loaded");
}

// The trap: seeding the generators asks for CUDA's, too.
TEST_F(LibtorchCudaTest, ComesTooLateAfterAtenHasSettledAndSaysSo) {
  EXPECT_EXIT(
      {
        at::manual_seed(1);
        load_and_exit(load_libtorch_cuda);
      },
      ::testing::ExitedWithCode(1), "came too late.*Options::device");
}

TEST_F(LibtorchCudaTest, MayBeAskedForAgain) {
  EXPECT_EXIT(
      {
        load_libtorch_cuda().value_or_throw("the first time");
        at::manual_seed(1);
        load_and_exit(load_libtorch_cuda);
      },
      ::testing::ExitedWithCode(0), "loaded");
}

TEST_F(LibtorchCudaTest, IsBridgedToOnceLoaded) {
  EXPECT_EXIT(
      {
        if (const auto early = cuda::make_torch_bridge(); !early) {
          std::cerr << "first " << early.refusal().reason << "; ";
        }
        load_libtorch_cuda().value_or_throw("then");
        if (cuda::make_torch_bridge()) {
          std::cerr << "then bridged" << std::endl;
        }
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "first LibTorch's CUDA half is not loaded.*then bridged");
}

TEST_F(LibtorchCudaTest, IsNotLoadedWhereThereIsNoDriver) {
  if (open_library("libcuda.so.1")) {
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  }
  EXPECT_EXIT(load_and_exit(load_cuda_early), ::testing::ExitedWithCode(1), "no NVIDIA driver.*libcuda.so.1");
}

TEST(Libtorch, LiesWhereItsLibrariesAre) {
  EXPECT_TRUE(std::filesystem::exists(libtorch_directory() + "/libtorch_cpu.so")) << libtorch_directory();
}

}  // namespace
}  // namespace sconce
