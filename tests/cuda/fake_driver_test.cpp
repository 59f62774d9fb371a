// The simulated driver keeps the real one's rules: tests that pass on it are worth something.
#include "tests/simulated_driver/fake_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace sconce::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void succeed(const Expected<void>& status) { ASSERT_TRUE(status) << status.refusal().reason; }

class FakeDriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    succeed(driver_.init());
    succeed(driver_.retain_primary_context(0, &context_));
    succeed(driver_.push_context(context_));
    succeed(driver_.create_stream(0, &stream_));
    succeed(driver_.create_stream(0, &other_));
    driver_.define_kernel("nothing", {}, [](const LaunchDimensions&, void* const*) {});
    succeed(driver_.load_module(FakeDriver::image().data(), &module_));
    succeed(driver_.module_function(module_, "nothing", &function_));
  }
  FakeDriver driver_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUstream other_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

TEST(FakeDriver, WantsToBeInitialisedFirst) {
  FakeDriver driver;
  int count = 0;
  EXPECT_THAT(driver.device_count(&count).refusal().reason, EndsWith(FakeDriver::error_text(CUDA_ERROR_NOT_INITIALIZED)));
  EXPECT_THAT(driver.calls(), ElementsAre("device_count"));
}

TEST(FakeDriver, WantsACurrentContext) {
  FakeDriver driver;
  succeed(driver.init());
  CUstream stream = nullptr;
  EXPECT_THAT(driver.create_stream(0, &stream).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_INVALID_CONTEXT)));
}

TEST_F(FakeDriverTest, RunsWorkOnlyWhenSomebodyWaits) {
  CUdeviceptr memory = 0;
  succeed(driver_.allocate(sizeof(int), &memory));
  const int in = 42;
  int out = 0;
  succeed(driver_.copy_to_device(memory, &in, sizeof in, stream_));
  succeed(driver_.copy_to_host(&out, memory, sizeof out, stream_));
  EXPECT_EQ(out, 0);
  succeed(driver_.synchronize_stream(other_));
  EXPECT_EQ(out, 0);
  succeed(driver_.synchronize_stream(stream_));
  EXPECT_EQ(out, 42);
  succeed(driver_.free(memory));
}

TEST_F(FakeDriverTest, OrdersStreamsByEvents) {
  CUdeviceptr memory = 0;
  CUevent event = nullptr;
  succeed(driver_.allocate(sizeof(int), &memory));
  succeed(driver_.create_event(0, &event));
  const int in = 7;
  int out = 0;
  succeed(driver_.copy_to_device(memory, &in, sizeof in, stream_));
  succeed(driver_.record_event(event, stream_));
  EXPECT_FALSE(*driver_.query_event(event));
  succeed(driver_.stream_wait_event(other_, event));
  succeed(driver_.copy_to_host(&out, memory, sizeof out, other_));
  succeed(driver_.synchronize_stream(other_));
  EXPECT_EQ(out, 7);
  EXPECT_TRUE(*driver_.query_event(event));
}

// A wait is for the capture before it: not for later work, and not for a later capture on another stream.
TEST_F(FakeDriverTest, WaitsForTheCaptureAtTheTimeOfTheCall) {
  CUevent event = nullptr;
  CUstream third = nullptr;
  succeed(driver_.create_event(0, &event));
  succeed(driver_.create_stream(0, &third));
  std::string done;
  succeed(driver_.enqueue_host_work(stream_, [&] { done += "a"; }));
  succeed(driver_.record_event(event, stream_));
  succeed(driver_.stream_wait_event(other_, event));
  succeed(driver_.enqueue_host_work(stream_, [&] { done += "b"; }));
  succeed(driver_.enqueue_host_work(third, [&] { done += "c"; }));
  succeed(driver_.record_event(event, third));
  succeed(driver_.synchronize_stream(other_));
  EXPECT_EQ(done, "a");
  succeed(driver_.synchronize_event(event));
  EXPECT_EQ(done, "ac");
  succeed(driver_.synchronize_stream(stream_));
  EXPECT_EQ(done, "acb");
}

TEST_F(FakeDriverTest, DoesHostWorkAfterTheStreamsWorkOrInTheCapture) {
  std::string done;
  succeed(driver_.enqueue_host_work(stream_, [&] { done += "a"; }));
  EXPECT_EQ(done, "");
  EXPECT_TRUE(*driver_.begin_host_work(stream_));
  EXPECT_EQ(done, "a");
  succeed(driver_.begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_FALSE(*driver_.begin_host_work(stream_));
  EXPECT_FALSE(driver_.call_after_work(stream_, [&] { done += "b"; }));
  EXPECT_FALSE(driver_.synchronize_stream(stream_));
  EXPECT_THAT(driver_.begin_host_work(stream_).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)));
  CUgraph graph = nullptr;
  EXPECT_FALSE(driver_.end_capture(stream_, &graph));
  EXPECT_TRUE(driver_.call_after_work(stream_, [&] { done += "c"; }));
  EXPECT_TRUE(*driver_.begin_host_work(stream_));
  EXPECT_EQ(done, "ac");
}

TEST_F(FakeDriverTest, FindsKernelsByTheTextOfTheirModule) {
  std::string ran;
  driver_.define_kernels([&](const std::string& text, const std::string& name) {
    return name == "main" ? std::optional<FakeDriver::KernelDefinition>(
                                {{}, [&ran, text](const LaunchDimensions&, void* const*) { ran += text; }})
                          : std::nullopt;
  });
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  succeed(driver_.load_module(FakeDriver::image("text").data(), &module));
  EXPECT_THAT(driver_.module_function(module, "other", &function).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_NOT_FOUND)));
  succeed(driver_.module_function(module, "main", &function));
  succeed(driver_.launch_kernel(function, {}, stream_, nullptr));
  succeed(driver_.synchronize_stream(stream_));
  EXPECT_EQ(ran, "text");
}

TEST_F(FakeDriverTest, RefusesSharedMemoryThatWasNotAskedFor) {
  LaunchDimensions dimensions;
  dimensions.shared_bytes = 100 * 1024;
  EXPECT_THAT(driver_.launch_kernel(function_, dimensions, stream_, nullptr).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_INVALID_VALUE)));
  succeed(driver_.set_function_attribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 * 1024));
  succeed(driver_.launch_kernel(function_, dimensions, stream_, nullptr));
}

TEST_F(FakeDriverTest, SpoilsACaptureThatTheDefaultStreamWouldJoin) {
  succeed(driver_.begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_THAT(driver_.launch_kernel(function_, {}, nullptr, nullptr).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)));
  CUgraph graph = nullptr;
  EXPECT_THAT(driver_.end_capture(stream_, &graph).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)));
}

TEST_F(FakeDriverTest, LetsTheDefaultStreamRunBesideCapturesOfNonBlockingStreams) {
  CUstream stream = nullptr;
  succeed(driver_.create_stream(CU_STREAM_NON_BLOCKING, &stream));
  succeed(driver_.begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::thread([&] {
    succeed(driver_.push_context(context_));
    succeed(driver_.launch_kernel(function_, {}, nullptr, nullptr));
    succeed(driver_.pop_context());
  }).join();
  CUgraph graph = nullptr;
  succeed(driver_.end_capture(stream, &graph));
  EXPECT_THAT(driver_.misuse(), IsEmpty());
}

TEST_F(FakeDriverTest, SpoilsACaptureWhoseThreadAllocates) {
  succeed(driver_.begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUdeviceptr memory = 0;
  EXPECT_THAT(driver_.allocate(16, &memory).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)));
  CUgraph graph = nullptr;
  EXPECT_THAT(driver_.end_capture(stream_, &graph).refusal().reason,
              EndsWith(FakeDriver::error_text(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)));
}

TEST_F(FakeDriverTest, AllowsAllocationsInRelaxedMode) {
  succeed(driver_.begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  succeed(driver_.exchange_capture_mode(&mode));
  CUdeviceptr memory = 0;
  succeed(driver_.allocate(16, &memory));
  succeed(driver_.exchange_capture_mode(&mode));
  CUgraph graph = nullptr;
  succeed(driver_.end_capture(stream_, &graph));
}

TEST_F(FakeDriverTest, NotesWorkThatEscapesACapture) {
  succeed(driver_.begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  succeed(driver_.launch_kernel(function_, {}, other_, nullptr));
  EXPECT_THAT(driver_.misuse(), ElementsAre(HasSubstr("not captured")));
}

TEST_F(FakeDriverTest, NotesKernelsOfUnloadedModules) {
  succeed(driver_.unload_module(module_));
  EXPECT_FALSE(driver_.launch_kernel(function_, {}, stream_, nullptr));
  EXPECT_THAT(driver_.misuse(), ElementsAre(HasSubstr("not loaded")));
}

TEST_F(FakeDriverTest, TellsWhatIsStillAlive) {
  EXPECT_THAT(driver_.leaks(), HasSubstr("2 streams"));
  EXPECT_THAT(driver_.leaks(), HasSubstr("1 modules"));
  EXPECT_THAT(driver_.leaks(), HasSubstr("1 pushed contexts"));
  succeed(driver_.unload_module(module_));
  succeed(driver_.destroy_stream(stream_));
  succeed(driver_.destroy_stream(other_));
  succeed(driver_.pop_context());
  succeed(driver_.release_primary_context(0));
  EXPECT_THAT(driver_.leaks(), IsEmpty());
}

TEST_F(FakeDriverTest, FailsOnDemand) {
  driver_.fail_call_of("create_event", 2, CUDA_ERROR_OUT_OF_MEMORY);
  CUevent event = nullptr;
  succeed(driver_.create_event(0, &event));
  EXPECT_THAT(driver_.create_event(0, &event).refusal().reason, EndsWith(FakeDriver::error_text(CUDA_ERROR_OUT_OF_MEMORY)));
  succeed(driver_.create_event(0, &event));
}

}  // namespace
}  // namespace sconce::cuda
