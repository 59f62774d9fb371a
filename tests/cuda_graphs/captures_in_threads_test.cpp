// Captures where other threads take part: in calls of the module, in waiting for the GPU, in captures of their own.
#include "tests/cuda_graphs/module_on_both.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A thread that does what it is told, one thing at a time.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    run({});
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Returns when it is done. An empty job is the last one.
  void run(const std::function<void()>& job) {
    std::unique_lock<std::mutex> lock(mutex_);
    job_ = &job;
    changed_.notify_all();
    changed_.wait(lock, [this] { return job_ == nullptr; });
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (bool is_last = false; !is_last;) {
      changed_.wait(lock, [this] { return job_ != nullptr; });
      is_last = !*job_;
      if (!is_last) {
        (*job_)();
      }
      job_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* job_ = nullptr;
  std::thread thread_;  // last: it uses what comes before
};

class CapturesInThreads : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), IsEmpty()); }

  void call(int number) {
    const at::NoGradGuard no_grad;
    both_.forward({at::randn({5, 4})}, "call " + std::to_string(number));
  }
  RangeCounts counts() const { return both_.counts().own; }

  const at::NoGradGuard no_grad_;
  SimulatedGpu gpu_;
  ModuleOnBoth both_{gpu_, kNetwork, {{"w", at::randn({8, 4})}, {"b", at::randn({8})}, {"v", at::randn({8, 8})}}};
};

TEST_F(CapturesInThreads, AreMadeWhereCallsComeInTurns) {
  std::vector<std::unique_ptr<Worker>> workers(3);
  for (auto& worker : workers) {
    worker = std::make_unique<Worker>();
  }
  for (int number = 0; number < 12; ++number) {
    workers[number % 3]->run([&] { call(number); });
  }
  EXPECT_EQ(counts().captures, 1U) << counts().reasons;
  EXPECT_GE(counts().replays, 8U) << counts().reasons;
}

TEST_F(CapturesInThreads, AreMadeWhereEachCallHasItsThread) {
  for (int number = 0; number < 16; ++number) {
    std::thread([&] { call(number); }).join();
  }
  EXPECT_EQ(counts().captures, 1U) << counts().reasons;
  EXPECT_GE(counts().replays, 8U) << counts().reasons;
}

// The last failure is one too many.
TEST_F(CapturesInThreads, AreMadeAgainAfterTheyWereSpoiled) {
  for (const int failures : {1, 2}) {
    ModuleOnBoth both(gpu_, kNetwork, {{"w", at::randn({8, 4})}, {"b", at::randn({8})}, {"v", at::randn({8, 8})}});
    for (int failure = 1; failure <= failures; ++failure) {
      gpu_.driver().fail_call_of("end_capture", static_cast<size_t>(failure), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    for (int number = 0; number < 12; ++number) {
      both.forward({at::randn({5, 4})}, "call " + std::to_string(number));
    }
    EXPECT_TRUE(gpu_.driver().has_failed());
    gpu_.driver().fail_nothing();
    EXPECT_EQ(both.counts().own.captures, 1U) << both.counts().own.reasons;
    EXPECT_GE(both.counts().own.replays, 5U) << both.counts().own.reasons;
  }
}

TEST_F(CapturesInThreads, AreRefusedAfterThreeFailures) {
  for (int number = 0; number < 12; ++number) {
    gpu_.driver().fail_nothing();
    gpu_.driver().fail_call_of("end_capture", 1, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    call(number);
  }
  gpu_.driver().fail_nothing();
  call(12);
  EXPECT_EQ(counts().captures, 0U) << counts().reasons;
  EXPECT_THAT(counts().reasons, HasSubstr("cannot be captured as a CUDA graph"));
}

// A thread that waits for the whole GPU while another one captures gets the driver's error, and spoils that capture.
TEST_F(CapturesInThreads, SurviveThreadsThatWaitForTheGpu) {
  std::atomic<bool> is_done{false};
  std::thread neighbor([&] {
    while (!is_done) {
      try {
        gpu_.runtime().synchronize(0);
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(cuda::FakeDriver::error_text(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)));
      }
    }
  });
  for (int number = 0; number < 8; ++number) {
    call(number);
  }
  is_done = true;
  neighbor.join();
  call(8);
}

// LibTorch's own graphs are captured in the global mode, in which no thread may allocate or load.
TEST_F(CapturesInThreads, LeaveCapturesOfTheCallersAlone) {
  cuda::FakeDriver& driver = gpu_.driver();
  CUstream stream = nullptr;
  const cuda::ContextScope current(driver, reinterpret_cast<CUcontext>(uintptr_t(1)));
  ASSERT_TRUE(driver.create_stream(CU_STREAM_NON_BLOCKING, &stream));
  for (const bool captures : {false, true}) {
    // The module compiles its plans and kernels, and captures its ranges, again.
    ModuleOnBoth both(gpu_, kNetwork, {{"w", at::randn({8, 4})}, {"b", at::randn({8})}, {"v", at::randn({8, 8})}});
    ASSERT_TRUE(driver.begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    std::thread([&] {
      const at::NoGradGuard no_grad;
      for (int number = 0; number < (captures ? 6 : 1); ++number) {
        both.forward({at::randn({5, 4})}, "call " + std::to_string(number));
      }
    }).join();
    CUgraph graph = nullptr;
    EXPECT_TRUE(driver.end_capture(stream, &graph)) << captures;
    if (graph != nullptr) {
      EXPECT_TRUE(driver.destroy_graph(graph));
    }
  }
  EXPECT_TRUE(driver.destroy_stream(stream));
}

// Each dropped capture gives its memory back, and the pool serves the next one.
TEST_F(CapturesInThreads, AreMadeAgainWhereOperandsMove) {
  for (int number = 0; number < 10; ++number) {
    const at::Tensor filler = at::empty({number % 2 == 0 ? 20 : 4000}, c10::Device(c10::DeviceType::CUDA, 0));
    call(number);
  }
  EXPECT_GE(counts().captures, 1U) << counts().reasons;
  EXPECT_GE(counts().replays, 5U) << counts().reasons;
}

}  // namespace
}  // namespace sconce::testing
