// Pools over windows, as prepared plans compute them: the results of LibTorch.
#include "tests/kernels/prepared_function.h"
#include "tests/support/threads.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace sconce {
namespace {

using testing::expect_alike;
using testing::prepared_function;
using testing::Shape;

const std::vector<Shape>& shapes_of_images() {
  static const std::vector<Shape> all = {{2, 20, 9, 11}, {1, 3, 12, 12}, {3, 16, 8, 8}, {2, 33, 4, 5},
                                         {1, 1, 7, 7},   {2, 5, 3, 3},   {4, 8, 30, 17}};
  return all;
}

// Special values of each kind, among others.
at::Tensor image_with_special_values(const Shape& shape) {
  const at::Tensor image = at::randint(-4, 4, shape).to(at::kFloat);  // with equal elements
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor elements = image.view(-1);
  for (const auto& [every, value] : std::vector<std::pair<int64_t, float>>{
           {7, std::numeric_limits<float>::quiet_NaN()}, {11, infinity}, {3, -infinity}}) {
    for (int64_t i = every; i < elements.numel(); i += every * 5) {
      elements[i] = value;
    }
  }
  image[0][0] = -infinity;
  return image;
}

// Compares prepared steps with LibTorch's operators, on images that lie in several ways.
void expect_same_pools(const std::string& function, const std::string& numbers, bool takes_special_values) {
  const std::string source = "def f(x: Tensor):\n    return torch." + function + "(x, " + numbers + ")\n";
  const auto prepared = prepared_function(source);
  const auto plain = testing::plain_function(source);
  for (const Shape& shape : shapes_of_images()) {
    const at::Tensor random = at::randn(shape);
    std::vector<at::Tensor> images = {random, random.contiguous(at::MemoryFormat::ChannelsLast), random.transpose(2, 3),
                                      random[0]};
    if (takes_special_values) {
      images.push_back(image_with_special_values(shape));
      images.push_back(images.back().contiguous(at::MemoryFormat::ChannelsLast));
    }
    for (const at::Tensor& image : images) {
      const std::string what = function + "(" + numbers + ") of " + c10::str(image.sizes());
      std::string error;
      c10::IValue expected;
      try {
        expected = testing::run(*plain, {image});
      } catch (const c10::Error& raised) {
        error = raised.what_without_backtrace();
      }
      if (!error.empty()) {
        EXPECT_THROW(testing::run(*prepared, {image}), c10::Error) << what << ": " << error;
        continue;
      }
      for (int run = 0; run < 2; ++run) {
        const c10::IValue got = testing::run(*prepared, {image});
        if (expected.isTensor()) {
          expect_alike(got.toTensor(), expected.toTensor(), what);
          continue;
        }
        expect_alike(got.toTupleRef().elements()[0].toTensor(), expected.toTupleRef().elements()[0].toTensor(), what);
        EXPECT_TRUE(at::equal(got.toTupleRef().elements()[1].toTensor(), expected.toTupleRef().elements()[1].toTensor()))
            << what << ", indices";
      }
    }
  }
}

TEST(WindowPools, FindTheMaximaOfLibTorch) {
  const at::NoGradGuard no_grad;
  at::manual_seed(11);
  for (const int count : {1, 2}) {
    const testing::Threads scope(count);
    for (const std::string numbers :
         {"[2, 2], [2, 2], [0, 0], [1, 1], False", "[3, 3], [2, 2], [1, 1], [1, 1], False", "[3], [2], [0], [1], True",
          "[3, 2], [], [1, 1], [1, 1], True", "[2, 3], [3, 1], [1, 0], [1, 1], False",
          "[2, 2], [1, 1], [0, 0], [2, 1], False", "[3, 3], [1, 1], [1, 1], [1, 1], False",
          "[3, 3], [5, 5], [1, 1], [1, 1], True", "[3, 3], [2, 2], [2, 2], [1, 1], False"}) {
      for (const std::string function : {"max_pool2d_with_indices", "max_pool2d"}) {
        expect_same_pools(function, numbers, /*takes_special_values=*/true);
      }
    }
  }
}

TEST(WindowPools, AverageWhatLibTorchAverages) {
  const at::NoGradGuard no_grad;
  at::manual_seed(12);
  for (const int count : {1, 2}) {
    const testing::Threads scope(count);
    for (const std::string numbers :
         {"[2, 2], [2, 2], [0, 0], False, True, None", "[3, 3], [2, 2], [1, 1], False, True, None",
          "[3], [1], [0], True, True, None", "[3, 2], [], [0, 0], False, False, None",
          "[2, 3], [3, 1], [0, 0], False, True, 5", "[3, 3], [2, 2], [0, 0], False, True, None"}) {
      expect_same_pools("avg_pool2d", numbers, /*takes_special_values=*/false);
    }
  }
}

TEST(WindowPools, SpreadGradientsOfAverages) {
  const at::NoGradGuard no_grad;
  at::manual_seed(13);
  for (const std::string numbers : {"[2, 2], [2, 2], [0, 0], False, True, None", "[3, 3], [2, 2], [1, 1], False, True, None",
                                    "[3, 2], [1, 3], [0, 0], False, False, None"}) {
    const std::string source = "def f(x: Tensor):\n    y = torch.avg_pool2d(x, " + numbers +
                               ")\n    return torch.avg_pool2d_backward(torch.cos(y), x, " + numbers + ")\n";
    const auto prepared = prepared_function(source);
    const auto plain = testing::plain_function(source);
    for (const Shape& shape : shapes_of_images()) {
      const at::Tensor random = at::randn(shape);
      for (const at::Tensor& image : {random, random.contiguous(at::MemoryFormat::ChannelsLast)}) {
        expect_alike(testing::run(*prepared, {image}).toTensor(), testing::run(*plain, {image}).toTensor(),
                     numbers + " of " + c10::str(image.sizes()));
      }
    }
  }
}

}  // namespace
}  // namespace sconce
