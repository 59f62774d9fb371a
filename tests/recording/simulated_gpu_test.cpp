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

  // Records what `work` sends to a side stream.
  Expected<std::unique_ptr<Recording>> record(const std::function<void()>& work) {
    return sconce::record(gpu_.runtime(), side_, pool_, work);
  }
  std::unique_ptr<Recording> recorded(const std::function<void()>& work) {
    return record(work).value_or_throw("the work cannot be recorded");
  }
  void replay(Recording& recording) { recording.replay(gpu_.runtime().current_stream(0)); }

  const at::NoGradGuard no_grad_;
  SimulatedGpu gpu_;
  const c10::Stream side_ = gpu_.runtime().side_stream(0);
  const std::shared_ptr<RecordingPool> pool_ = gpu_.runtime().make_recording_pool(0);
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

TEST_F(SimulatedGpuTest, RecordedOperatorsRunAtEachReplay) {
  at::Tensor a = at::randn({3, 3});
  at::Tensor b = at::randn({3, 3});
  const at::Tensor x = gpu_.tensor(a);
  const at::Tensor w = gpu_.tensor(b);
  std::vector<at::Tensor> found;
  const auto recording = recorded([&] { compute(x, w, found); });
  for (const at::Tensor& result : found) {
    EXPECT_TRUE(is_poison(result));
  }
  expect_equal(x, a);
  for (int call = 0; call < 3; ++call) {
    std::vector<at::Tensor> expected;
    compute(a, b, expected);
    replay(*recording);
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

TEST_F(SimulatedGpuTest, RecordedWritesHappenAtEachReplay) {
  const at::Tensor x = gpu_.tensor(at::zeros({4}));
  const auto recording = recorded([&] { x.slice(0, 1, 3).add_(1); });
  expect_equal(x, at::zeros({4}));
  replay(*recording);
  replay(*recording);
  expect_equal(x, at::tensor({0, 2, 2, 0}, at::kFloat));
}

}  // namespace
}  // namespace sconce::testing
