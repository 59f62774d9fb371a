// CUDA C++ text to machine code. Needs NVRTC, no GPU and no driver.
#include "cuda/nvrtc.h"
#include "base/environment.h"
#include "plan/device/libtorch_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace sconce::cuda {
namespace {

using ::testing::HasSubstr;

const char* const kAxpy = R"(
#include <cuda_fp16.h>
extern "C" __global__ void axpy(float a, const float* x, const __half* y, float* out, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + __half2float(y[i]);
}
)";

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_nvrtc({environment().nvrtc, nvrtc_directories_of_libtorch(libtorch_directory())});
    if (!opened) {
      GTEST_SKIP() << opened.refusal().reason;
    }
    nvrtc_ = std::move(*opened);
  }
  std::unique_ptr<Nvrtc> nvrtc_;
};

// ELF's e_flags of a cubin carry the architecture's number: in bits 0-7 up to ABI version 7, in bits 8-15 since.
int architecture_of(const std::string& cubin) {
  const auto byte = [&cubin](size_t i) { return int(static_cast<unsigned char>(cubin.at(i))); };
  const int low = byte(48);
  const int high = byte(49);
  return byte(8) >= 8 ? high : low;
}

class NvrtcArchitectureTest : public NvrtcTest, public ::testing::WithParamInterface<int> {};

TEST_P(NvrtcArchitectureTest, CompilesToMachineCodeOfTheArchitecture) {
  const auto cubin = nvrtc_->compile(kAxpy, "sm_" + std::to_string(GetParam()));
  ASSERT_TRUE(cubin) << cubin.refusal().reason;
  EXPECT_EQ(cubin->bytes.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_THAT(cubin->bytes, HasSubstr("axpy"));
  EXPECT_EQ(architecture_of(cubin->bytes), GetParam());
}
INSTANTIATE_TEST_SUITE_P(Chips, NvrtcArchitectureTest, ::testing::Values(80, 90, 100, 120));

TEST_F(NvrtcTest, NamesItsVersionAndFile) {
  EXPECT_THAT(nvrtc_->version(), ::testing::StartsWith("13."));
  EXPECT_THAT(nvrtc_->path(), HasSubstr("libnvrtc.so.13"));
}

TEST_F(NvrtcTest, GivesTheCompilersLogWithAnError) {
  const auto cubin = nvrtc_->compile("extern \"C\" __global__ void broken() { undeclared = 1; }", "sm_90");
  EXPECT_FALSE(cubin);
  EXPECT_THAT(cubin.refusal().reason, HasSubstr("kernel.cu(1)"));
  EXPECT_THAT(cubin.refusal().reason, HasSubstr("undeclared"));
}

TEST_F(NvrtcTest, KeepsWarnings) {
  const auto cubin = nvrtc_->compile("extern \"C\" __global__ void f() { int unused; }", "sm_90");
  ASSERT_TRUE(cubin) << cubin.refusal().reason;
  EXPECT_THAT(cubin->log, HasSubstr("unused"));
}

TEST_F(NvrtcTest, RefusesAnArchitectureThatItDoesNotKnow) {
  EXPECT_THAT(nvrtc_->compile(kAxpy, "sm_1").refusal().reason, HasSubstr("sm_1"));
}

TEST_F(NvrtcTest, RefusesAVirtualArchitecture) {
  EXPECT_THAT(nvrtc_->compile(kAxpy, "compute_90").refusal().reason, HasSubstr("no machine code"));
}

TEST_F(NvrtcTest, PassesOptionsOn) {
  const std::string text = "extern \"C\" __global__ void f(int* p) { *p = VALUE; }";
  EXPECT_FALSE(nvrtc_->compile(text, "sm_90"));
  EXPECT_TRUE(nvrtc_->compile(text, "sm_90", {"-DVALUE=3"}));
}

TEST_F(NvrtcTest, CompilesInManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      const auto cubin = nvrtc_->compile(kAxpy, thread % 2 == 0 ? "sm_80" : "sm_90");
      EXPECT_TRUE(cubin) << cubin.refusal().reason;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Nvrtc, IsNotSearchedForWhenAFileIsNamed) {
  const auto nvrtc = open_nvrtc({"no/such/libnvrtc.so.13", nvrtc_directories_of_libtorch(libtorch_directory())});
  ASSERT_FALSE(nvrtc);
  EXPECT_THAT(nvrtc.refusal().reason, HasSubstr("no/such/libnvrtc.so.13: cannot open"));
}

TEST(Nvrtc, RefusesAnotherLibrary) {
  const auto nvrtc = open_nvrtc({"libm.so.6", {}});
  ASSERT_FALSE(nvrtc);
  EXPECT_THAT(nvrtc.refusal().reason, HasSubstr("it lacks nvrtc"));
}

}  // namespace
}  // namespace sconce::cuda
