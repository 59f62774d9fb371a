// Direct loops, of all kinds of vectors that the processor has: the results of LibTorch's convolutions and means.
#include "kernels/loops/direct_loops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sconce {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<const DirectKernels*> all_kernels() {
  std::vector<const DirectKernels*> all;
  for (const int64_t lanes : {8, 16}) {
    if (const DirectKernels* kernels = direct_kernels(lanes); kernels != nullptr) {
      all.push_back(kernels);
    }
  }
  return all;
}

at::Tensor channels_last(const at::Tensor& image) { return image.contiguous(at::MemoryFormat::ChannelsLast); }

struct Sizes {
  int64_t images, channels, height, width, kernel_height, kernel_width, stride, padding;
};

DirectLoops loops_of(const Sizes& sizes, const at::Tensor& image, const at::Tensor& weights, const at::Tensor& bias,
                     const at::Tensor& out) {
  return {.image = image.const_data_ptr<float>(),
          .weights = weights.const_data_ptr<float>(),
          .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
          .out = out.mutable_data_ptr<float>(),
          .height = sizes.height,
          .width = sizes.width,
          .channels_in = image.size(1),
          .image_distance = image.stride(0),
          .row_distance = image.stride(2),
          .pixel_distance = image.stride(3),
          .channel_distance = image.stride(1),
          .out_height = out.size(2),
          .out_width = out.size(3),
          .channels_out = out.size(1),
          .kernel_height = sizes.kernel_height,
          .kernel_width = sizes.kernel_width,
          .stride_height = sizes.stride,
          .stride_width = sizes.stride,
          .padding_height = sizes.padding,
          .padding_width = sizes.padding,
          .least = -kInfinity,
          .most = kInfinity};
}

// Runs the rows in two parts, as two threads would, over memory of NaN, and compares.
void expect_rows(const DirectRows rows, DirectLoops loops, const at::Tensor& out, const at::Tensor& expected) {
  const int64_t count = out.size(0) * out.size(2);
  for (const bool is_clamped : {false, true}) {
    loops.least = is_clamped ? -0.5F : -kInfinity;
    loops.most = is_clamped ? 1.5F : kInfinity;
    out.fill_(std::nan(""));
    rows(loops, 0, count / 2);
    rows(loops, count / 2, count);
    const at::Tensor wanted = is_clamped ? expected.clamp(-0.5, 1.5) : expected;
    EXPECT_TRUE(at::allclose(out, wanted, 1e-4, 1e-4)) << (out - wanted).abs().max().item<float>();
  }
}

TEST(DirectLoops, ComputeDepthwiseConvolutions) {
  constexpr std::array<int64_t, 3> kPixels = {7, 4, 1};
  for (const DirectKernels* kernels : all_kernels()) {
    for (const Sizes& sizes : std::vector<Sizes>{{1, 16, 9, 15, 3, 3, 1, 1},
                                                 {2, 19, 8, 9, 3, 3, 2, 1},
                                                 {1, 40, 7, 7, 5, 5, 1, 2},
                                                 {2, 33, 11, 23, 5, 5, 2, 2},
                                                 {1, 24, 6, 7, 7, 7, 1, 3},
                                                 {1, 17, 20, 21, 7, 7, 2, 0},
                                                 {1, 16, 1, 30, 1, 3, 1, 0},
                                                 {1, 16, 3, 3, 3, 3, 1, 4},  // rows and columns that are all padding
                                                 {2, 31, 5, 16, 2, 5, 1, 1}}) {
      for (const bool has_bias : {true, false}) {
        const at::Tensor image = channels_last(at::randn({sizes.images, sizes.channels, sizes.height, sizes.width}));
        const at::Tensor weight = at::randn({sizes.channels, 1, sizes.kernel_height, sizes.kernel_width});
        const at::Tensor bias = has_bias ? at::randn({sizes.channels}) : at::Tensor();
        const at::Tensor expected = at::conv2d(image, weight, bias, sizes.stride, sizes.padding, 1, sizes.channels);
        const at::Tensor out = channels_last(at::empty_like(expected));
        const at::Tensor packed = weight.reshape({sizes.channels, -1}).t().contiguous();
        for (size_t step = 0; step < kPixels.size(); ++step) {
          const DirectRows rows = kernels->depthwise[(sizes.kernel_width - 3) / 2].rows[sizes.stride - 1][step];
          if (expected.size(3) >= kPixels[step]) {
            expect_rows(rows, loops_of(sizes, image, packed, bias, out), out, expected);
          }
        }
      }
    }
  }
}

TEST(DirectLoops, ComputeConvolutionsOfFewChannels) {
  for (const DirectKernels* kernels : all_kernels()) {
    for (const Sizes& sizes : std::vector<Sizes>{{1, 3, 17, 33, 3, 3, 2, 1},
                                                 {2, 1, 9, 8, 5, 5, 1, 2},
                                                 {1, 3, 40, 38, 7, 7, 2, 3},
                                                 {1, 4, 16, 64, 4, 4, 4, 0},
                                                 {2, 2, 12, 11, 1, 2, 1, 0},
                                                 {1, 3, 2, 9, 3, 3, 1, 3}}) {
      for (const int64_t channels_out : {16, 24, 37, 64}) {
        for (const bool is_last : {false, true}) {
          const at::Tensor planar = at::randn({sizes.images, sizes.channels, sizes.height, sizes.width});
          const at::Tensor image = is_last ? channels_last(planar) : planar;
          const at::Tensor weight = at::randn({channels_out, sizes.channels, sizes.kernel_height, sizes.kernel_width});
          const at::Tensor bias = is_last ? at::randn({channels_out}) : at::Tensor();
          const at::Tensor expected = at::conv2d(image, weight, bias, sizes.stride, sizes.padding);
          const at::Tensor out = channels_last(at::empty_like(expected));
          const at::Tensor packed = weight.permute({1, 2, 3, 0}).contiguous();
          for (const size_t vectors : {0, 1}) {
            for (const size_t step : {0, 1}) {
              const bool fits = channels_out >= static_cast<int64_t>(vectors + 1) * kernels->lanes &&
                                (step == 1 || expected.size(3) >= kernels->pixels);
              if (fits) {
                expect_rows(kernels->few_channels[vectors][step], loops_of(sizes, image, packed, bias, out), out, expected);
              }
            }
          }
        }
      }
    }
  }
}

TEST(DirectLoops, LeaveNaNsAsTheyAre) {
  for (const DirectKernels* kernels : all_kernels()) {
    const Sizes sizes{1, 16, 4, 4, 3, 3, 1, 1};
    at::Tensor image = channels_last(at::ones({1, 16, 4, 4}));
    image[0][3][0][0] = std::nan("");
    const at::Tensor weight = at::ones({16, 1, 3, 3});
    const at::Tensor out = channels_last(at::empty({1, 16, 4, 4}));
    const at::Tensor packed = weight.reshape({16, -1}).t().contiguous();
    DirectLoops loops = loops_of(sizes, image, packed, {}, out);
    loops.least = 0;
    loops.most = 6;
    kernels->depthwise[0].rows[0][1](loops, 0, 4);
    const at::Tensor expected = at::conv2d(image, weight, {}, 1, 1, 1, 16).clamp(0, 6);
    EXPECT_TRUE(at::allclose(out, expected, 0, 0, /*equal_nan=*/true));
    EXPECT_EQ(out.isnan().sum().item<int64_t>(), 4);
  }
}

TEST(DirectLoops, ComputeMeans) {
  for (const DirectKernels* kernels : all_kernels()) {
    for (const int64_t rows : {1, 3, 64, 700}) {
      for (const int64_t columns : {16, 49, 64, 150, 3136}) {
        const at::Tensor matrix = at::randn({rows, columns}) + 1;
        const at::Tensor of_rows = at::empty({rows});
        kernels->mean_of_rows(matrix.const_data_ptr<float>(), rows, columns, of_rows.mutable_data_ptr<float>());
        EXPECT_TRUE(at::allclose(of_rows, matrix.mean(1), 1e-5, 1e-6));
        const at::Tensor of_columns = at::empty({columns});
        kernels->mean_of_columns(matrix.const_data_ptr<float>(), rows, columns, columns,
                                 of_columns.mutable_data_ptr<float>());
        EXPECT_TRUE(at::allclose(of_columns, matrix.mean(0), 1e-5, 1e-6));
      }
      const at::Tensor narrow = at::randn({rows, 5});
      const at::Tensor of_rows = at::empty({rows});
      kernels->mean_of_rows(narrow.const_data_ptr<float>(), rows, 5, of_rows.mutable_data_ptr<float>());
      EXPECT_TRUE(at::allclose(of_rows, narrow.mean(1), 1e-5, 1e-6));
    }
  }
}

}  // namespace
}  // namespace sconce
