// Kernels compiled by NVRTC, on LibTorch's tensors and streams.
#include "tests/gpu/need_gpu.h"

#include <gmock/gmock.h>

#include <ATen/ATen.h>

namespace sconce {
namespace {

using ::testing::HasSubstr;

const char* const kText = R"(
extern "C" __global__ void axpy(float a, const float* x, const float* y, float* out, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
extern "C" __global__ void sum_of_block(const float* x, float* out, int n) {
  extern __shared__ float all[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) all[i] = x[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += all[i];
    *out = sum;
  }
}
)";

class GpuKernelTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (runtime_ == nullptr) {
      return;
    }
    const auto code = runtime_->compile(kText, runtime_->architecture(0));
    ASSERT_TRUE(code) << code.refusal().reason;
    auto module = runtime_->load_module(0, *code);
    ASSERT_TRUE(module) << module.refusal().reason;
    module_ = *module;
  }

  void axpy(float a, const at::Tensor& x, const at::Tensor& y, at::Tensor& out, c10::Stream stream) {
    const float* x_data = x.const_data_ptr<float>();
    const float* y_data = y.const_data_ptr<float>();
    float* out_data = out.mutable_data_ptr<float>();
    long long n = out.numel();
    void* const arguments[] = {&a, &x_data, &y_data, &out_data, &n};
    LaunchShape shape;
    shape.block[0] = 256;
    shape.grid[0] = uint32_t((n + 255) / 256);
    runtime_->launch(**module_->kernel("axpy"), shape, stream, arguments);
  }

  std::shared_ptr<DeviceModule> module_;
};

TEST_F(GpuKernelTest, NamesTheGpu) {
  EXPECT_NE(runtime_->name(0), "");
  EXPECT_THAT(runtime_->architecture(0), ::testing::MatchesRegex("sm_[0-9]+"));
  const DeviceLimits limits = runtime_->limits(0);
  EXPECT_GT(limits.multiprocessors, 0U);
  EXPECT_EQ(limits.warp_threads, 32U);
  EXPECT_GE(limits.block_threads, 1024U);
  EXPECT_GE(limits.shared_bytes, 48U * 1024);
  std::printf("%s, %s, %u multiprocessors, %u bytes of shared memory\n", runtime_->name(0).c_str(),
              runtime_->architecture(0).c_str(), limits.multiprocessors, limits.shared_bytes);
}

TEST_F(GpuKernelTest, GivesWhatTheCpuGives) {
  const at::Tensor x = at::rand({1000, 1003});
  const at::Tensor y = at::rand({1000, 1003});
  at::Tensor out = at::full({1000, 1003}, NAN, at::kCUDA);
  axpy(1.25F, x.to(at::kCUDA), y.to(at::kCUDA), out, runtime_->current_stream(0));
  EXPECT_TRUE(at::allclose(out.to(at::kCPU), 1.25 * x + y, 1e-6, 1e-6));
}

TEST_F(GpuKernelTest, IsOrderedWithOperatorsByEvents) {
  const c10::Stream side = runtime_->side_stream(0);
  const at::Tensor x = at::rand({1 << 20}, at::kCUDA);
  at::Tensor out = at::empty_like(x);
  const auto ready = runtime_->make_event(0, /*is_timed=*/true);
  const auto done = runtime_->make_event(0, /*is_timed=*/true);
  const at::Tensor y = x * 3;
  ready->record(runtime_->current_stream(0));
  ready->block(side);
  axpy(2.0F, x, y, out, side);
  done->record(side);
  done->block(runtime_->current_stream(0));
  EXPECT_TRUE(at::allclose((out - 5 * x).to(at::kCPU), at::zeros({1 << 20}), 0, 1e-5));
  EXPECT_TRUE(done->done());
  EXPECT_GE(done->seconds_since(*ready), 0.0);
}

TEST_F(GpuKernelTest, MayUseLargeSharedMemory) {
  constexpr int kFloats = 16 * 1024;  // 64 KiB, more than a kernel gets unasked
  const at::Tensor x = at::ones({kFloats}, at::kCUDA);
  at::Tensor out = at::zeros({}, at::kCUDA);
  const float* x_data = x.const_data_ptr<float>();
  float* out_data = out.mutable_data_ptr<float>();
  int n = kFloats;
  void* const arguments[] = {&x_data, &out_data, &n};
  LaunchShape shape;
  shape.block[0] = 256;
  shape.shared_bytes = kFloats * sizeof(float);
  runtime_->launch(**module_->kernel("sum_of_block"), shape, runtime_->current_stream(0), arguments);
  EXPECT_EQ(out.item<float>(), float(kFloats));
}

TEST_F(GpuKernelTest, RefusesAnUnknownKernelAndABadLaunch) {
  const auto kernel = module_->kernel("no_such_kernel");
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.refusal().reason, HasSubstr("CUDA_ERROR_NOT_FOUND"));
  LaunchShape shape;
  shape.block[0] = 100'000;
  float* nothing = nullptr;
  int n = 0;
  void* const arguments[] = {&nothing, &nothing, &n};
  EXPECT_THROW(runtime_->launch(**module_->kernel("sum_of_block"), shape, runtime_->current_stream(0), arguments),
               c10::Error);
  runtime_->synchronize(0);
}

TEST_F(GpuKernelTest, RefusesCodeForAnotherArchitecture) {
  const std::string other = runtime_->architecture(0) == "sm_80" ? "sm_90" : "sm_80";
  const auto code = runtime_->compile(kText, other);
  ASSERT_TRUE(code) << code.refusal().reason;
  // Code for an older chip of the same major number would load; 8.0 and 9.0 differ.
  const auto module = runtime_->load_module(0, *code);
  ASSERT_FALSE(module);
  EXPECT_THAT(module.refusal().reason, HasSubstr("CUDA_ERROR_NO_BINARY_FOR_GPU"));
}

}  // namespace
}  // namespace sconce
