// Captures of LibTorch's operators on a real GPU: stream capture, the allocator's pools, clean-up.
#include "tests/gpu/need_gpu.h"

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace sconce {
namespace {

using ::testing::HasSubstr;

class GpuCaptureTest : public GpuTest {
 protected:
  // Runs the work once on a side stream, as `capture_work` wants it, and captures it there.
  Expected<std::unique_ptr<Capture>> warm_up_and_capture(const std::function<void()>& work) {
    const c10::Stream side = runtime_->side_stream(0);
    runtime_->synchronize(0);
    {
      const CurrentStream current(*runtime_, side);
      work();
    }
    runtime_->synchronize(0);
    return capture_work(*runtime_, side, runtime_->make_capture_pool(0), work);
  }
  static int64_t allocated_bytes() {
    return c10::getDeviceAllocator(c10::DeviceType::CUDA)->getDeviceStats(0).allocated_bytes[0].current;
  }
};

TEST_F(GpuCaptureTest, ReplaysOperatorsOnNewInputs) {
  at::Tensor x = at::rand({64, 128}, at::kCUDA);
  const at::Tensor weight = at::rand({128, 32}, at::kCUDA);
  at::Tensor out;
  const auto work = [&] { out = at::relu(at::matmul(x, weight) - 30).sum(1); };
  auto capture = warm_up_and_capture(work);
  ASSERT_TRUE(capture) << capture.refusal().reason;
  EXPECT_GT((*capture)->nodes(), 1U);
  for (int replay = 0; replay < 3; ++replay) {
    x.copy_(at::rand({64, 128}, at::kCUDA));
    (*capture)->replay(runtime_->current_stream(0));
    const at::Tensor expected = at::relu(at::matmul(x, weight) - 30).sum(1);
    EXPECT_TRUE(at::allclose(out, expected, 1e-5, 1e-5)) << "replay " << replay;
  }
}

TEST_F(GpuCaptureTest, KeepsItsMemoryWhileOthersAllocate) {
  const at::Tensor x = at::rand({1 << 20}, at::kCUDA);
  at::Tensor out;
  auto capture = warm_up_and_capture([&] { out = at::exp(x * 2) + 1; });  // temporaries live in the pool only
  ASSERT_TRUE(capture) << capture.refusal().reason;
  std::vector<at::Tensor> others;
  for (int i = 0; i < 16; ++i) {
    others.push_back(at::full({1 << 20}, 7.0, at::kCUDA));
  }
  (*capture)->replay(runtime_->current_stream(0));
  EXPECT_TRUE(at::allclose(out, at::exp(x * 2) + 1));
  for (const at::Tensor& other : others) {
    EXPECT_TRUE(at::equal(other, at::full_like(other, 7.0)));
  }
}

TEST_F(GpuCaptureTest, RefusesToReadAValueBackAndGoesOn) {
  const at::Tensor x = at::rand({1000}, at::kCUDA);
  const int64_t before = allocated_bytes();
  const c10::Stream current = runtime_->current_stream(0);
  const auto capture = capture_work(*runtime_, runtime_->side_stream(0), runtime_->make_capture_pool(0), [&] {
    const at::Tensor y = x + 1;
    y.sum().item<float>();
  });
  ASSERT_FALSE(capture);
  EXPECT_EQ(runtime_->current_stream(0), current);
  EXPECT_EQ(allocated_bytes(), before);
  EXPECT_TRUE(at::allclose((x + 1).cpu(), x.cpu() + 1)) << "operators run as before";
}

TEST_F(GpuCaptureTest, RefusesRandomNumbersAndLeavesTheGeneratorAlone) {
  at::manual_seed(7);
  const at::Tensor expected = at::rand({100}, at::kCUDA);
  at::manual_seed(7);
  const auto capture =
      capture_work(*runtime_, runtime_->side_stream(0), runtime_->make_capture_pool(0), [] { at::rand({100}, at::kCUDA); });
  ASSERT_FALSE(capture);
  EXPECT_TRUE(at::equal(at::rand({100}, at::kCUDA), expected));
}

TEST_F(GpuCaptureTest, GivesItsMemoryBackInTheEnd) {
  const at::Tensor x = at::rand({1 << 22}, at::kCUDA);
  const auto round = [&] {
    at::Tensor out;
    auto capture = warm_up_and_capture([&] { out = at::exp(x); });
    EXPECT_TRUE(capture);
    runtime_->synchronize(0);
  };
  const auto reserved = [] {
    c10::DeviceAllocator* allocator = c10::getDeviceAllocator(c10::DeviceType::CUDA);
    allocator->emptyCache();
    return allocator->getDeviceStats(0).reserved_bytes[0].current;
  };
  round();
  const int64_t after_one = reserved();
  for (int i = 0; i < 5; ++i) {
    round();
  }
  EXPECT_EQ(reserved(), after_one);
}

}  // namespace
}  // namespace sconce
