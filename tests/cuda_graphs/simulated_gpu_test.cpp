// The simulated GPU itself: that operators run there as they do on a GPU.
#include "tests/simulated_gpu/simulated_gpu.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SimulatedGpuTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), IsEmpty()); }

  void expect_equal(const at::Tensor& found, const at::Tensor& expected) {
    ASSERT_TRUE(found.is_cuda());
    EXPECT_TRUE(at::equal(gpu_.values(found), expected)) << gpu_.values(found) << expected;
  }
  bool is_poison(const at::Tensor& tensor) { return gpu_.values(tensor).isnan().all().item<bool>(); }

  // Captures what `work` sends to a side stream.
  Expected<std::unique_ptr<Capture>> capture(const std::function<void()>& work) {
    return capture_work(gpu_.runtime(), side_, pool_, work);
  }
  std::unique_ptr<Capture> captured(const std::function<void()>& work) {
    return capture(work).value_or_throw("the work cannot be captured");
  }
  void replay(Capture& capture) { capture.replay(gpu_.runtime().current_stream(0)); }

  const at::NoGradGuard no_grad_;
  SimulatedGpu gpu_;
  const c10::Stream side_ = gpu_.runtime().side_stream(0);
  const std::shared_ptr<CapturePool> pool_ = gpu_.runtime().make_capture_pool(0);
};

TEST_F(SimulatedGpuTest, OperatorsComputeWhatTheyComputeOnTheCpu) {
  const at::Tensor a = at::randn({3, 4});
  const at::Tensor b = at::randn({4, 5});
  const at::Tensor x = gpu_.tensor(a);
  const at::Tensor y = gpu_.tensor(b);
  expect_equal(x.mm(y), a.mm(b));
  expect_equal(x.t() + 1, a.t() + 1);
  expect_equal(at::cat({x, x.mul(2)}, 1), at::cat({a, a.mul(2)}, 1));
  expect_equal(at::ones({2}, x.options()) * x.select(0, 1).sum(), at::ones({2}) * a.select(0, 1).sum());
  x.select(0, 1).zero_();
  a.select(0, 1).zero_();
  expect_equal(x, a);
  at::Tensor out = at::empty({0}, x.options());
  at::mm_out(out, x, y);
  expect_equal(out, a.mm(b));
  EXPECT_EQ(out.sizes(), at::IntArrayRef({3, 5}));
  expect_equal(x.view({12}).resize_({2, 3}), a.view({12}).slice(0, 0, 6).view({2, 3}));
}

TEST_F(SimulatedGpuTest, FreshMemoryIsPoison) {
  EXPECT_TRUE(is_poison(at::empty({5}, gpu_.tensor(at::ones({1})).options())));
}

// Fills `results` with what a chain of operators computes of the operands.
void compute(const at::Tensor& x, const at::Tensor& w, std::vector<at::Tensor>& results) {
  at::Tensor product = x.mm(w);
  product.add_(x);
  const at::Tensor joined = at::cat({product.t(), x.view({9}).slice(0, 0, 3).unsqueeze(0)});
  at::Tensor relu = joined.clone().relu_();
  at::Tensor sum = at::empty({0}, x.options());
  at::add_out(sum, relu.select(0, 3), w.select(1, 0), 2);
  results = {product, joined, relu, sum, product.select(1, 2)};
}

TEST_F(SimulatedGpuTest, CapturedOperatorsRunAtEachReplay) {
  at::Tensor a = at::randn({3, 3});
  at::Tensor b = at::randn({3, 3});
  const at::Tensor x = gpu_.tensor(a);
  const at::Tensor w = gpu_.tensor(b);
  std::vector<at::Tensor> found;
  const auto capture = captured([&] { compute(x, w, found); });
  for (const at::Tensor& result : found) {
    EXPECT_TRUE(is_poison(result));
  }
  expect_equal(x, a);
  for (int call = 0; call < 3; ++call) {
    std::vector<at::Tensor> expected;
    compute(a, b, expected);
    replay(*capture);
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_equal(found[i], expected[i]);
      EXPECT_EQ(found[i].strides(), expected[i].strides());
    }
    a = at::randn({3, 3});
    b = at::randn({3, 3});
    x.copy_(a);
    w.copy_(b);
  }
  EXPECT_EQ(gpu_.driver_calls("launch_graph"), 3U);
}

TEST_F(SimulatedGpuTest, CapturedWritesHappenAtEachReplay) {
  const at::Tensor x = gpu_.tensor(at::zeros({4}));
  const auto capture = captured([&] { x.slice(0, 1, 3).add_(1); });
  expect_equal(x, at::zeros({4}));
  replay(*capture);
  replay(*capture);
  expect_equal(x, at::tensor({0, 2, 2, 0}, at::kFloat));
}

TEST_F(SimulatedGpuTest, ReplaysReadAndWriteCapturedAddresses) {
  at::Tensor x = gpu_.tensor(at::zeros({4}));
  const void* const address = x.const_data_ptr();
  const auto capture = captured([&] { x.add_(1); });
  x.reset();
  const at::Tensor later = gpu_.tensor(at::full({4}, 5.0F));
  ASSERT_EQ(later.const_data_ptr(), address) << "freed memory serves the next allocation of its size";
  replay(*capture);
  expect_equal(later, at::full({4}, 6.0F));
}

TEST_F(SimulatedGpuTest, FreedMemoryBecomesPoison) {
  at::Tensor x = gpu_.tensor(at::zeros({4}));
  const at::Tensor other = x.detach();
  x.reset();
  expect_equal(other, at::zeros({4}));
  const void* const address = other.const_data_ptr();
  at::Tensor freed = gpu_.tensor(at::zeros({4}));
  const void* const second = freed.const_data_ptr();
  EXPECT_NE(second, address);
  freed.reset();
  const at::Tensor again = at::empty({4}, other.options());
  EXPECT_EQ(again.const_data_ptr(), second);
  EXPECT_TRUE(is_poison(again));
}

TEST_F(SimulatedGpuTest, CapturesHaveMemoryOfTheirOwn) {
  const at::Tensor x = gpu_.tensor(at::arange(4, at::kFloat));
  at::Tensor result;
  const void* intermediate = nullptr;
  const auto capture = captured([&] {
    at::Tensor first = x + 1;
    intermediate = first.const_data_ptr();
    const at::Tensor second = first * 2;
    first.reset();
    result = second + 1;
  });
  EXPECT_EQ(result.const_data_ptr(), intermediate) << "a block that is freed in a capture serves it again";
  std::vector<at::Tensor> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(gpu_.tensor(at::full({4}, float(i))));
  }
  replay(*capture);
  expect_equal(result, at::tensor({3, 5, 7, 9}, at::kFloat));
  for (int i = 0; i < 8; ++i) {
    expect_equal(others[size_t(i)], at::full({4}, float(i)));
  }
}

TEST_F(SimulatedGpuTest, ReservesNoMoreMemoryForTheSameWork) {
  const at::Tensor x = gpu_.tensor(at::ones({100, 100}));
  size_t reserved = 0;
  for (int call = 0; call < 5; ++call) {
    at::Tensor result;
    auto pool = gpu_.runtime().make_capture_pool(0);
    const auto capture = capture_work(gpu_.runtime(), side_, pool, [&] { result = (x + 1) * 2; });
    ASSERT_TRUE(capture);
    if (call == 1) {
      reserved = gpu_.memory().bytes_reserved();
    }
    EXPECT_LE(gpu_.memory().bytes_reserved(), call == 0 ? SIZE_MAX : reserved);
  }
  EXPECT_LT(gpu_.memory().bytes_in_use(), 50000U) << "one tensor";
}

// LibTorch refuses to capture these operators. Afterwards, captures and operators work again.
TEST_F(SimulatedGpuTest, CannotCaptureWhatWaitsForTheDeviceOrIsRandom) {
  const at::Tensor x = gpu_.tensor(at::ones({4}));
  const at::Tensor mask = x > 0;
  const at::Tensor on_cpu = at::ones({4});
  const std::vector<std::function<void()>> works = {
      [&] { at::rand_like(x); },      [&] { at::dropout(x, 0.5, true); },
      [&] { x.sum().item(); },        [&] { at::nonzero(x); },
      [&] { x.index({mask}); },       [&] { x.cpu(); },
      [&] { x.copy_(on_cpu); },       [&] { at::equal(x, x); },
      [&] { x.masked_select(mask); }, [&] { gpu_.runtime().synchronize(0); },
  };
  for (size_t i = 0; i < works.size(); ++i) {
    const auto refused = capture([&] {
      x.add_(1);
      works[i]();
    });
    ASSERT_FALSE(refused) << i;
    EXPECT_THAT(refused.refusal().reason, ::testing::AnyOf(HasSubstr("operation not permitted when stream is capturing"),
                                                           HasSubstr("the CUDA driver failed")))
        << i;
    works[i]();
    replay(*captured([&] { x.sub_(1); }));
    x.add_(1);
  }
  expect_equal(x, at::ones({4}));
}

// A capture that something has broken stays broken, even if the failure is ignored.
TEST_F(SimulatedGpuTest, CannotFinishACaptureThatSomethingBroke) {
  const at::Tensor x = gpu_.tensor(at::ones({4}));
  const auto refused = capture([&] {
    EXPECT_THROW(at::rand_like(x), c10::Error);
    EXPECT_THROW(x.add_(1), c10::Error);
  });
  EXPECT_FALSE(refused);
}

TEST_F(SimulatedGpuTest, IndicesThatAreCapturedNeedNotBeKnownThen) {
  const at::Tensor table = gpu_.tensor(at::arange(12, at::kFloat).view({6, 2}));
  const at::Tensor numbers = gpu_.tensor(at::tensor({1, 3}, at::kLong));
  at::Tensor rows;
  const auto capture = captured([&] { rows = table.index({numbers + 1}) + at::embedding(table, numbers * 0); });
  EXPECT_TRUE(is_poison(rows));
  replay(*capture);
  expect_equal(rows, at::tensor({4, 6, 8, 10}, at::kFloat).view({2, 2}));
}

TEST_F(SimulatedGpuTest, StreamsThatDoNotWaitReadWhatIsThere) {
  DeviceRuntime& runtime = gpu_.runtime();
  const c10::Stream main = runtime.current_stream(0);
  const auto event = runtime.make_event(0, /*is_timed=*/true);
  const at::Tensor x = gpu_.late_tensor(at::ones({4}));
  at::Tensor early;
  at::Tensor ordered;
  {
    const CurrentStream current(runtime, side_);
    early = x + 1;
    event->record(main);
    event->block(side_);
    ordered = x + 1;
    EXPECT_TRUE(is_poison(early));
    expect_equal(ordered, at::full({4}, 2.0F));
  }
  expect_equal(x, at::ones({4}));
}

TEST_F(SimulatedGpuTest, ReplaysRunOnlyForStreamsThatWaitForThem) {
  DeviceRuntime& runtime = gpu_.runtime();
  const at::Tensor x = gpu_.tensor(at::zeros({4}));
  const auto capture = captured([&] { x.add_(1); });
  capture->replay(side_);
  expect_equal(x, at::zeros({4}));
  const auto event = runtime.make_event(0, /*is_timed=*/true);
  event->record(side_);
  capture->replay(side_);
  event->block(runtime.current_stream(0));
  expect_equal(x, at::ones({4}));
  runtime.synchronize(0);
  expect_equal(x, at::full({4}, 2.0F));
}

// Memory that another stream uses is reused after that stream's work.
TEST_F(SimulatedGpuTest, FreedMemoryWaitsForCapturedUses) {
  at::Tensor x = gpu_.tensor(at::ones({4}));
  const void* const address = x.const_data_ptr();
  x.record_stream(side_);
  x.reset();
  EXPECT_NE(at::empty({4}, at::device(at::kCUDA)).const_data_ptr(), address);
  gpu_.runtime().synchronize(0);
  const at::Tensor again = at::empty({4}, at::device(at::kCUDA));
  const at::Tensor other = at::empty({4}, at::device(at::kCUDA));
  EXPECT_TRUE(again.const_data_ptr() == address || other.const_data_ptr() == address);
}

TEST_F(SimulatedGpuTest, AutogradRunsBackwardOnTheDevice) {
  const at::AutoGradMode with_grad(true);
  const auto gradients = [](at::Tensor x, at::Tensor w) {
    x.requires_grad_(true);
    w.requires_grad_(true);
    const at::Tensor joined = at::cat({x.mm(w).relu(), x.view({9}).slice(0, 0, 3).unsqueeze(0)});
    joined.softmax(1).mul(at::arange(3, x.options())).sum().backward();
    return std::pair(x.grad(), w.grad());
  };
  const at::Tensor a = at::randn({3, 3});
  const at::Tensor b = at::randn({3, 3});
  const auto expected = gradients(a.clone(), b.clone());
  for (int call = 0; call < 3; ++call) {
    const auto found = gradients(gpu_.tensor(a), gpu_.tensor(b));
    expect_equal(found.first, expected.first);
    expect_equal(found.second, expected.second);
  }
}

}  // namespace
}  // namespace sconce::testing
