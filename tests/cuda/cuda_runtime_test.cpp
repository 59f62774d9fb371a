// The device interface for NVIDIA GPUs, over the simulated driver and a simulated LibTorch.
#include "cuda/cuda_runtime.h"
#include "plan/device/libtorch_cuda.h"
#include "tests/simulated_driver/fake_driver.h"
#include "tests/simulated_driver/fake_torch_bridge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <c10/util/Exception.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace sconce::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What `call` throws, in one string.
template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

class CudaRuntimeTest : public ::testing::Test {
 protected:
  static constexpr size_t kSideStreams = 4;

  void SetUp() override {
    driver_->define_kernel("add", {sizeof(int*), sizeof(int)}, [](const LaunchDimensions&, void* const* arguments) {
      **static_cast<int**>(arguments[0]) += *static_cast<int*>(arguments[1]);
    });
    auto module = runtime_->load_module(0, FakeDriver::image());
    ASSERT_TRUE(module) << module.refusal().reason;
    module_ = *module;
    add_ = *module_->kernel("add");
    stream_.emplace(runtime_->side_stream(0));
  }

  void TearDown() override {
    driver_->fail_nothing();
    module_.reset();
    runtime_.reset();
    EXPECT_EQ(bridge_->leaks(), "");
    bridge_.reset();
    EXPECT_EQ(driver_->leaks(), "");
    EXPECT_THAT(driver_->misuse(), IsEmpty());
  }

  void add(int amount, c10::Stream stream) {
    int* target = &sum_;
    void* const arguments[] = {&target, &amount};
    runtime_->launch(*add_, {}, stream, arguments);
  }
  // As operators do: on the current stream.
  void add(int amount) { add(amount, runtime_->current_stream(0)); }

  int sum() {
    runtime_->synchronize(0);
    return sum_;
  }

  std::shared_ptr<FakeDriver> driver_ = std::make_shared<FakeDriver>();
  std::shared_ptr<FakeTorchBridge> bridge_ = std::make_shared<FakeTorchBridge>(*driver_, kSideStreams);
  std::unique_ptr<DeviceRuntime> runtime_ = make_cuda_runtime(driver_, bridge_, {});
  std::shared_ptr<DeviceModule> module_;
  const DeviceKernel* add_ = nullptr;
  std::optional<c10::Stream> stream_;
  int sum_ = 0;
};

TEST_F(CudaRuntimeTest, NamesItsDevices) {
  EXPECT_EQ(runtime_->device_count(), 1);
  EXPECT_EQ(runtime_->why_unavailable(), "");
  EXPECT_EQ(runtime_->name(0), "simulated GPU 0");
  EXPECT_EQ(runtime_->architecture(0), "sm_90");
  EXPECT_EQ(runtime_->limits(0).multiprocessors, 132U);
  EXPECT_EQ(runtime_->limits(0).multiprocessor_threads, 2048U);
  EXPECT_EQ(runtime_->limits(0).warp_threads, 32U);
  EXPECT_EQ(runtime_->limits(0).block_threads, 1024U);
  EXPECT_EQ(runtime_->limits(0).shared_bytes, 227U * 1024);
  EXPECT_THAT(error_of([&] { runtime_->name(1); }), HasSubstr("there is no device cuda:1: this machine has 1"));
}

TEST_F(CudaRuntimeTest, LaunchesKernels) {
  add(3);
  EXPECT_EQ(sum_, 0);
  EXPECT_EQ(sum(), 3);
}

TEST_F(CudaRuntimeTest, AsksForLargeSharedMemoryOnce) {
  LaunchShape shape;
  shape.shared_bytes = 100 * 1024;
  int amount = 1;
  int* target = &sum_;
  void* const arguments[] = {&target, &amount};
  runtime_->launch(*add_, shape, runtime_->current_stream(0), arguments);
  runtime_->launch(*add_, shape, runtime_->current_stream(0), arguments);
  EXPECT_EQ(sum(), 2);
  EXPECT_EQ(std::ranges::count(driver_->calls(), "set_function_attribute"), 1);
}

TEST_F(CudaRuntimeTest, GivesTheDriversWordsWhenALaunchFails) {
  driver_->fail_call_of("launch_kernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_THAT(error_of([&] { add(1); }), HasSubstr("the kernel add cannot be launched (launch_kernel: "));
}

TEST_F(CudaRuntimeTest, RefusesAnUnknownKernel) {
  const auto kernel = module_->kernel("sub");
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.refusal().reason, HasSubstr("no kernel 'sub'"));
}

TEST_F(CudaRuntimeTest, RefusesWhatIsNoMachineCode) {
  for (const std::string& image : {std::string(), std::string("ELF"), std::string(100, 'x')}) {
    const auto module = runtime_->load_module(0, image);
    ASSERT_FALSE(module);
    EXPECT_THAT(module.refusal().reason, HasSubstr("no machine code"));
  }
}

TEST_F(CudaRuntimeTest, MeasuresAndOrdersByEvents) {
  const auto start = runtime_->make_event(0, /*is_timed=*/true);
  const auto end = runtime_->make_event(0, /*is_timed=*/true);
  const c10::Stream current = runtime_->current_stream(0);
  start->record(current);
  add(1);
  end->record(current);
  end->block(*stream_);
  add(10, *stream_);
  EXPECT_FALSE(end->done());
  end->wait();
  EXPECT_TRUE(end->done());
  EXPECT_GT(end->seconds_since(*start), 0.0);
  EXPECT_EQ(sum(), 11);
}

TEST_F(CudaRuntimeTest, CapturesAndReplays) {
  const c10::Stream before = runtime_->current_stream(0);
  const auto pool = runtime_->make_capture_pool(0);
  auto capture = capture_work(*runtime_, *stream_, pool, [&] {
    EXPECT_EQ(runtime_->current_stream(0), *stream_);
    add(1);
    add(10);
  });
  ASSERT_TRUE(capture) << capture.refusal().reason;
  EXPECT_EQ(runtime_->current_stream(0), before);
  EXPECT_EQ(sum(), 0) << "capture runs nothing";
  EXPECT_EQ((*capture)->nodes(), 2U);
  (*capture)->replay(before);
  (*capture)->replay(*stream_);
  EXPECT_EQ(sum(), 22);
}

TEST_F(CudaRuntimeTest, AllocatesFromThePoolOnTheCapturedStreamOnly) {
  const auto pool = runtime_->make_capture_pool(0);
  const c10::Stream other = runtime_->side_stream(0);
  auto capture = capture_work(*runtime_, *stream_, pool, [&] {
    EXPECT_TRUE(bridge_->pool_serving(bridge_->handle(*stream_)));
    EXPECT_FALSE(bridge_->pool_serving(bridge_->handle(other)));
    EXPECT_FALSE(bridge_->pool_serving(nullptr));
  });
  ASSERT_TRUE(capture);
  EXPECT_FALSE(bridge_->pool_serving(bridge_->handle(*stream_)));
  EXPECT_THAT(bridge_->leaks(), HasSubstr("1 pools with shares")) << "the capture's memory is kept for its replays";
}

TEST_F(CudaRuntimeTest, SharesAPoolBetweenCaptures) {
  const auto pool = runtime_->make_capture_pool(0);
  auto first = capture_work(*runtime_, *stream_, pool, [&] { add(1); });
  auto second = capture_work(*runtime_, *stream_, pool, [&] { add(10); });
  ASSERT_TRUE(first && second);
  *first = nullptr;
  EXPECT_THAT(bridge_->leaks(), HasSubstr("1 pools with shares"));
  (*second)->replay(*stream_);
  EXPECT_EQ(sum(), 10);
}

TEST_F(CudaRuntimeTest, RefusesToCaptureTheDefaultStream) {
  const auto capture = capture_work(*runtime_, runtime_->current_stream(0), runtime_->make_capture_pool(0), [] {});
  ASSERT_FALSE(capture);
  EXPECT_THAT(capture.refusal().reason, HasSubstr("default stream"));
}

TEST_F(CudaRuntimeTest, RefusesWorkThatThrowsAndSaysWhatItThrew) {
  const auto capture = capture_work(*runtime_, *stream_, runtime_->make_capture_pool(0), [&] {
    add(1);
    TORCH_CHECK(false, "random numbers are drawn");
  });
  ASSERT_FALSE(capture);
  EXPECT_THAT(capture.refusal().reason, HasSubstr("random numbers are drawn"));
  EXPECT_EQ(bridge_->leaks(), "");
  add(5, *stream_);
  EXPECT_EQ(sum(), 5) << "the stream runs again";
}

TEST_F(CudaRuntimeTest, RefusesWorkThatSynchronizes) {
  const auto capture =
      capture_work(*runtime_, *stream_, runtime_->make_capture_pool(0), [&] { EXPECT_ANY_THROW(runtime_->synchronize(0)); });
  ASSERT_FALSE(capture);
  EXPECT_THAT(capture.refusal().reason, HasSubstr("cannot be captured as a CUDA graph"));
  EXPECT_EQ(bridge_->leaks(), "");
}

// Whichever driver call fails: a refusal or an error, the allocator and the streams as before, the next attempt right.
TEST_F(CudaRuntimeTest, LeavesEverythingAsItWasWhicheverCallFails) {
  const std::string alive = driver_->leaks();
  for (size_t n = 1;; ++n) {
    const size_t calls_before = driver_->calls().size();
    driver_->fail_call(n, CUDA_ERROR_UNKNOWN);
    {
      auto capture = capture_work(*runtime_, *stream_, runtime_->make_capture_pool(0), [&] { add(1); });
      if (capture) {
        error_of([&] { (*capture)->replay(*stream_); });
      }
    }
    const size_t calls = driver_->calls().size() - calls_before;
    driver_->fail_nothing();
    runtime_->synchronize(0);
    EXPECT_EQ(driver_->leaks(), alive) << "after call " << n << ", "
                                       << driver_->calls()[calls_before + std::min(n, calls) - 1];
    EXPECT_EQ(bridge_->leaks(), "") << "after call " << n;
    EXPECT_EQ(runtime_->current_stream(0).id(), 0) << "after call " << n;

    sum_ = 0;
    auto again = capture_work(*runtime_, *stream_, runtime_->make_capture_pool(0), [&] { add(2); });
    ASSERT_TRUE(again) << again.refusal().reason;
    (*again)->replay(*stream_);
    EXPECT_EQ(sum(), 2);
    if (n > calls) {
      EXPECT_GT(n, 15U) << "the loop has not met the calls it is meant for";
      break;
    }
  }
}

TEST_F(CudaRuntimeTest, CapturesInManyThreadsAtOnce) {
  std::atomic<int> total{0};
  driver_->define_kernel("count", {}, [&total](const LaunchDimensions&, void* const*) { ++total; });
  const DeviceKernel* count = *module_->kernel("count");
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kSideStreams; ++i) {
    threads.emplace_back([&, stream = runtime_->side_stream(0)] {
      for (int round = 0; round < 50; ++round) {
        auto capture = capture_work(*runtime_, stream, runtime_->make_capture_pool(0),
                                    [&] { runtime_->launch(*count, {}, runtime_->current_stream(0), {}); });
        ASSERT_TRUE(capture) << capture.refusal().reason;
        (*capture)->replay(stream);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  runtime_->synchronize(0);
  EXPECT_EQ(total, 50 * int(kSideStreams));
}

TEST(CudaRuntime, SaysWhyThereIsNoDevice) {
  const auto runtime = make_cuda_runtime(nullptr, nullptr, {}, "no driver, said the test");
  EXPECT_EQ(runtime->device_count(), 0);
  EXPECT_EQ(runtime->why_unavailable(), "no driver, said the test");
  EXPECT_THAT(error_of([&] { runtime->synchronize(0); }), HasSubstr("no device cuda:0: no driver, said the test"));
}

TEST(CudaRuntime, SaysWhyTheDriversDevicesCannotBeUsed) {
  const auto driver = std::make_shared<FakeDriver>(0);
  const auto bridge = std::make_shared<FakeTorchBridge>(*driver, 0);
  EXPECT_EQ(make_cuda_runtime(driver, bridge, {})->why_unavailable(), "the NVIDIA driver reports no GPU");
  driver->fail_call_of("device_count", 1, CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT_THAT(make_cuda_runtime(driver, bridge, {})->why_unavailable(), HasSubstr("device_count: "));
}

TEST(CudaRuntime, CompilesWithoutADevice) {
  const auto runtime =
      make_cuda_runtime(nullptr, nullptr, {{}, nvrtc_directories_of_libtorch(libtorch_directory())}, "no driver");
  const auto code = runtime->compile("extern \"C\" __global__ void f() {}", "sm_90");
  if (!code && code.refusal().reason.starts_with("no libnvrtc")) {
    GTEST_SKIP() << code.refusal().reason;
  }
  ASSERT_TRUE(code) << code.refusal().reason;
  EXPECT_EQ((*code).substr(1, 3), "ELF");
  const auto broken = runtime->compile("__global__ void f() { x; }", "sm_90");
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.refusal().reason, HasSubstr("identifier \"x\" is undefined"));
}

// The one that programs get, through the library that is opened on demand.
TEST(CudaRuntime, IsFoundForCudaOnly) {
  const auto runtime = find_device_runtime(c10::DeviceType::CUDA);
  ASSERT_TRUE(runtime) << runtime.refusal().reason;
  EXPECT_EQ(*find_device_runtime(c10::DeviceType::CUDA), *runtime) << "made once";
  EXPECT_EQ((*runtime)->device_count() == 0, !(*runtime)->why_unavailable().empty()) << (*runtime)->why_unavailable();
  const auto cpu = find_device_runtime(c10::DeviceType::CPU);
  ASSERT_FALSE(cpu);
  EXPECT_THAT(cpu.refusal().reason, HasSubstr("'cpu'"));
}

TEST_F(CudaRuntimeTest, MayTakeThePlaceOfTheOneThatProgramsGet) {
  {
    const DeviceRuntimeInPlace in_place(*runtime_);
    EXPECT_EQ(*find_device_runtime(c10::DeviceType::CUDA), runtime_.get());
    EXPECT_FALSE(find_device_runtime(c10::DeviceType::CPU));
  }
  const auto own = find_device_runtime(c10::DeviceType::CUDA);
  EXPECT_NE(own ? *own : nullptr, runtime_.get());
}

}  // namespace
}  // namespace sconce::cuda
