// Capture on the driver's level, against the simulated driver.
#include "cuda/stream_capture.h"
#include "tests/simulated_driver/fake_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace sconce::cuda {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void expect_success(const Expected<void>& status) { ASSERT_TRUE(status) << status.refusal().reason; }

template <typename T>
T value_of(Expected<T> result) {
  return std::move(result).value_or_throw("value_of");
}

class StreamCaptureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    expect_success(driver_.init());
    expect_success(driver_.retain_primary_context(0, &context_));
    expect_success(driver_.push_context(context_));
    expect_success(driver_.create_stream(CU_STREAM_NON_BLOCKING, &stream_));
    expect_success(driver_.create_stream(CU_STREAM_NON_BLOCKING, &other_));
    driver_.define_kernel("add", {sizeof(int*), sizeof(int)}, [](const LaunchDimensions&, void* const* arguments) {
      **static_cast<int**>(arguments[0]) += *static_cast<int*>(arguments[1]);
    });
    expect_success(driver_.load_module(FakeDriver::image().data(), &module_));
    expect_success(driver_.module_function(module_, "add", &add_));
  }

  void TearDown() override {
    driver_.fail_nothing();
    ignore(driver_.unload_module(module_));
    ignore(driver_.destroy_stream(stream_));
    ignore(driver_.destroy_stream(other_));
    ignore(driver_.pop_context());
    ignore(driver_.release_primary_context(0));
    EXPECT_EQ(driver_.leaks(), "");
    EXPECT_THAT(driver_.misuse(), IsEmpty());
  }

  Expected<void> add(int amount, CUstream stream) {
    int* target = &sum_;
    void* arguments[] = {&target, &amount};
    return driver_.launch_kernel(add_, {}, stream, arguments);
  }

  int sum() {
    expect_success(driver_.synchronize_context());
    return sum_;
  }

  FakeDriver driver_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUstream other_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction add_ = nullptr;
  int sum_ = 0;
};

TEST_F(StreamCaptureTest, RunsNothingUntilItIsReplayed) {
  const auto capture = value_of(StreamCapture::begin(driver_, stream_));
  expect_success(add(1, stream_));
  expect_success(add(10, stream_));
  const auto graph = value_of(capture->finish());
  EXPECT_EQ(sum(), 0);
  EXPECT_EQ(graph->nodes(), 2U);
  expect_success(graph->launch(stream_));
  expect_success(graph->launch(other_));
  EXPECT_EQ(sum(), 22);
  expect_success(add(100, stream_));
  EXPECT_EQ(sum(), 122) << "the stream runs again";
}

TEST_F(StreamCaptureTest, LeavesTheStreamUsableWhenAbandoned) {
  {
    const auto capture = value_of(StreamCapture::begin(driver_, stream_));
    expect_success(add(1, stream_));
  }
  expect_success(add(5, stream_));
  EXPECT_EQ(sum(), 5);
}

TEST_F(StreamCaptureTest, FailsAfterACallThatCannotBeCaptured) {
  const auto capture = value_of(StreamCapture::begin(driver_, stream_));
  EXPECT_THAT(driver_.synchronize_stream(stream_).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)));
  EXPECT_THAT(capture->finish().refusal().reason, EndsWith(FakeDriver::error_text(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)));
  expect_success(add(5, stream_));
  EXPECT_EQ(sum(), 5);
}

TEST_F(StreamCaptureTest, IsNotSpoiledByAllocationsOfOtherThreads) {
  const auto capture = value_of(StreamCapture::begin(driver_, stream_));
  std::thread([this] {
    expect_success(driver_.push_context(context_));
    CUdeviceptr memory = 0;
    expect_success(driver_.allocate(16, &memory));
    expect_success(driver_.free(memory));
    expect_success(driver_.pop_context());
  }).join();
  const auto graph = value_of(capture->finish());
}

TEST_F(StreamCaptureTest, TakesInStreamsThatAreForkedAndJoined) {
  CUevent event = nullptr;
  expect_success(driver_.create_event(CU_EVENT_DISABLE_TIMING, &event));
  const auto capture = value_of(StreamCapture::begin(driver_, stream_));
  expect_success(driver_.record_event(event, stream_));
  expect_success(driver_.stream_wait_event(other_, event));
  expect_success(add(1, other_));
  expect_success(driver_.record_event(event, other_));
  expect_success(driver_.stream_wait_event(stream_, event));
  const auto graph = value_of(capture->finish());
  expect_success(graph->launch(stream_));
  EXPECT_EQ(sum(), 1);
  expect_success(driver_.destroy_event(event));
}

TEST_F(StreamCaptureTest, FailsWhenAForkedStreamIsNotJoined) {
  CUevent event = nullptr;
  expect_success(driver_.create_event(CU_EVENT_DISABLE_TIMING, &event));
  const auto capture = value_of(StreamCapture::begin(driver_, stream_));
  expect_success(driver_.record_event(event, stream_));
  expect_success(driver_.stream_wait_event(other_, event));
  expect_success(add(1, other_));
  EXPECT_THAT(capture->finish().refusal().reason, EndsWith(FakeDriver::error_text(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)));
  expect_success(driver_.destroy_event(event));
  expect_success(add(7, other_));
  EXPECT_EQ(sum(), 7);
}

TEST_F(StreamCaptureTest, CannotBeginOnTheDefaultStreamOrTwice) {
  EXPECT_THAT(StreamCapture::begin(driver_, nullptr).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)));
  const auto capture = value_of(StreamCapture::begin(driver_, stream_));
  EXPECT_THAT(StreamCapture::begin(driver_, stream_).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_ILLEGAL_STATE)));
}

TEST_F(StreamCaptureTest, NamesTheFunctionThatFailed) {
  driver_.fail_call_of("instantiate_graph", 1, CUDA_ERROR_OUT_OF_MEMORY);
  const auto capture = value_of(StreamCapture::begin(driver_, stream_));
  EXPECT_THAT(capture->finish().refusal().reason, HasSubstr("instantiate_graph"));
}

// Whichever call fails: an error or a graph that works, nothing left behind (TearDown), the stream usable.
TEST_F(StreamCaptureTest, LeavesNothingBehindWhicheverCallFails) {
  for (size_t n = 1;; ++n) {
    const size_t calls_before = driver_.calls().size();
    driver_.fail_call(n, CUDA_ERROR_UNKNOWN);
    bool succeeded = false;
    {
      const auto capture = StreamCapture::begin(driver_, stream_);
      if (capture && add(1, stream_)) {
        const auto graph = (*capture)->finish();
        succeeded = graph && (*graph)->launch(stream_);
      }
    }
    const size_t calls = driver_.calls().size() - calls_before;
    driver_.fail_nothing();
    sum_ = 0;
    expect_success(add(2, stream_));
    expect_success(driver_.synchronize_stream(stream_));
    EXPECT_GE(sum_, 2) << "the stream does not run after call " << n << " failed";
    if (n > calls) {
      EXPECT_TRUE(succeeded);
      EXPECT_GT(n, 8U) << "the loop has not met the calls it is meant for";
      break;
    }
  }
}

}  // namespace
}  // namespace sconce::cuda
