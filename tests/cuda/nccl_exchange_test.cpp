// libsconce_nccl fits LibTorch's CUDA library. Without a GPU, all it can say is that there is none.
#include "base/shared_library.h"
#include "plan/device/device.h"
#include "plan/device/libtorch_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace sconce {
namespace {

// Prints what the library answers, and ends the process.
[[noreturn]] void make_exchange_and_exit(const std::string& path) {
  const auto loaded = load_libtorch_cuda();
  const auto library = loaded ? open_library(path) : loaded.refusal();
  if (!library) {
    std::cerr << library.refusal().reason << std::endl;
    std::_Exit(1);
  }
  const auto make =
      reinterpret_cast<c10d::Backend* (*)(c10d::Store*, int, int, int64_t)>(library->symbol("sconce_nccl_exchange"));
  try {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto exchange = c10::intrusive_ptr<c10d::Backend>::reclaim(make(store.get(), 0, 1, 1000));
    std::cerr << exchange->getBackendName() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
  }
  std::_Exit(0);
}

TEST(NcclExchange, IsLibTorchs) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string path = directory_of_code(reinterpret_cast<const void*>(&find_device_runtime)) + "/libsconce_nccl.so";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "this build has no libsconce_nccl.so: NCCL's header or LibTorch's CUDA library is missing";
  }
  EXPECT_EXIT(make_exchange_and_exit(path), ::testing::ExitedWithCode(0), "nccl|no GPUs found");
}

}  // namespace
}  // namespace sconce
