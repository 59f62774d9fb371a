// Tiles, for each kind of vectors: products and convolutions beside LibTorch's.
#include "tests/support/threads.h"

#include "kernels/packed/image_rows.h"
#include "kernels/packed/tiled_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace sconce {
namespace {

using testing::Threads;

// The code for vectors of 16 elements, on processors without them too.
namespace wide {
constexpr int kLanes = 16;
constexpr int kRegisters = 32;
#include "kernels/loops/vectors_code.h"

#include "kernels/loops/tiles_code.h"
}  // namespace wide

std::vector<const TileKernels*> all_kernels() {
  static const TileKernels wide_kernels = wide::make_tile_kernels();
  std::vector<const TileKernels*> kernels = {&wide_kernels};
  for (const int64_t lanes : {4, 8, 16}) {
    if (const TileKernels* found = tile_kernels(lanes)) {
      kernels.push_back(found);
    }
  }
  return kernels;
}

constexpr double kTolerance = 1e-4;

// weight: {groups * columns, channels, height, width}, in any order
at::Tensor pack(const Panels& panels, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor packed = at::full({panels.elements()}, std::numeric_limits<float>::quiet_NaN());
  panels.pack({.data = weight.const_data_ptr<float>(),
               .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
               .column_distance = weight.stride(0),
               .group_distance = panels.columns_of_group() * weight.stride(0),
               .row_distance = weight.stride(2),
               .pixel_distance = weight.stride(3),
               .channel_distance = weight.stride(1)},
              packed.mutable_data_ptr<float>());
  return packed;
}

at::Tensor product_by_tiles(const TileKernels& kernels, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const float* bounds = nullptr) {
  const int64_t m = input.size(0);
  const int64_t k = input.size(1);
  const Panels panels(kernels, 1, weight.size(0), 1, 1, k);
  const at::Tensor packed = pack(panels, weight.unsqueeze(-1).unsqueeze(-1), bias);
  const auto find = [&](int64_t first, int64_t last, const float** rows) {
    for (int64_t row = first; row < last; ++row) {
      *rows++ = input.const_data_ptr<float>() + row * input.stride(0);
    }
  };
  const at::Tensor out = at::full({m, weight.size(0)}, std::numeric_limits<float>::quiet_NaN());
  TiledProduct(panels, {0}, k)
      .run(packed.const_data_ptr<float>(), {.count = m, .elements = k, .find = find}, out.mutable_data_ptr<float>(), bounds);
  return out;
}

TEST(Tiles, ComputeProductsOfAllSizes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  for (const TileKernels* kernels : all_kernels()) {
    for (const int64_t m : {1, 2, 3, 5, 6, 7, 11, 13, 14, 15, 29, 100}) {
      for (const int64_t n : {1, 3, 4, 7, 8, 12, 16, 17, 24, 31, 40, 48, 49, 80, 113}) {
        for (const int64_t k : {1, 2, 5, 63, 769}) {
          const at::Tensor input = at::randn({m, k + 3}).narrow(1, 0, k);
          const at::Tensor weight = (k % 2 == 0 ? at::randn({k, n}).t() : at::randn({n, k})) / std::sqrt(k);
          const at::Tensor bias = k == 5 ? at::Tensor() : at::randn({n});
          const at::Tensor ours = product_by_tiles(*kernels, input, weight, bias);
          ASSERT_TRUE(at::allclose(ours, at::linear(input, weight, bias), kTolerance, kTolerance))
              << kernels->lanes << " lanes: " << m << " x " << n << " x " << k;
        }
      }
    }
  }
}

TEST(Tiles, ComputeTheSameBitsOnAnyNumberOfThreads) {
  const at::NoGradGuard no_grad;
  at::manual_seed(2);
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {1, 1000, 900}, {3, 700, 1600}, {50, 48, 2000}, {200, 24, 400}, {97, 331, 1601}, {1000, 16, 64}}) {
    const at::Tensor input = at::randn({m, k});
    const at::Tensor weight = at::randn({n, k});
    const at::Tensor bias = at::randn({n});
    at::Tensor by_one;
    for (const int threads : {1, 2, 3, 7}) {
      const Threads scope(threads);
      const at::Tensor ours = product_by_tiles(tile_kernels(), input, weight, bias);
      by_one = by_one.defined() ? by_one : ours;
      EXPECT_TRUE(at::equal(ours, by_one)) << threads << " threads: " << m << " x " << n << " x " << k;
    }
  }
}

TEST(Tiles, ClampResultsAndKeepNaN) {
  const at::NoGradGuard no_grad;
  const std::array<float, 2> bounds = {-0.5, 0.5};
  const at::Tensor input = at::randn({9, 40});
  input[2][3] = std::numeric_limits<float>::quiet_NaN();
  input[4][0] = std::numeric_limits<float>::infinity();
  const at::Tensor weight = at::randn({21, 40});
  const at::Tensor expected = at::hardtanh(at::linear(input, weight), -0.5, 0.5);
  for (const TileKernels* kernels : all_kernels()) {
    const at::Tensor ours = product_by_tiles(*kernels, input, weight, {}, bounds.data());
    EXPECT_TRUE(at::allclose(ours, expected, kTolerance, kTolerance, /*equal_nan=*/true)) << kernels->lanes;
  }
}

// Returns a form whose result has pixels.
ConvolutionForm random_form(std::mt19937& random) {
  const auto of = [&](std::initializer_list<int64_t> choices) {
    return *(choices.begin() + std::uniform_int_distribution<int64_t>(0, static_cast<int64_t>(choices.size()) - 1)(random));
  };
  ConvolutionForm form;
  do {
    form.images = of({1, 1, 2, 5});
    form.image = {of({1, 2, 5, 9, 14, 30}), of({1, 3, 7, 15, 40})};
    form.groups = of({1, 1, 1, 2, 3});
    form.channels_in = form.groups * of({1, 2, 3, 4, 8, 20, 64});
    form.channels_out = form.groups * of({1, 5, 8, 16, 24, 33, 100});
    form.kernel = {of({1, 1, 2, 3, 5}), of({1, 1, 3, 4})};
    form.stride = {of({1, 1, 2, 3}), of({1, 1, 2})};
    form.padding = {of({0, 1, 2}), of({0, 1, 3})};
    form.dilation = {of({1, 1, 2}), of({1, 1, 3})};
    form.image_is_channels_last = of({0, 1}) == 1;
  } while (form.size_out(0) < 1 || form.size_out(1) < 1);
  return form;
}

TEST(Tiles, ComputeConvolutions) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  std::mt19937 random(3);
  const auto kernels = all_kernels();
  for (int i = 0; i < 300; ++i) {
    const ConvolutionForm form = random_form(random);
    const auto format = form.image_is_channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    const at::Tensor image = at::randn({form.images, form.channels_in, form.image[0], form.image[1]}).contiguous(format);
    const at::Tensor weight = at::randn({form.channels_out, form.channels_in / form.groups, form.kernel[0], form.kernel[1]});
    const at::Tensor bias = at::randn({form.channels_out});
    // In double precision, which takes LibTorch's own kernel: oneDNN's crashes for some of these forms.
    const at::Tensor expected = at::conv2d(image.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble), form.stride,
                                           form.padding, form.dilation, form.groups)
                                    .permute({0, 2, 3, 1})
                                    .to(at::kFloat);
    const ImageRows image_rows(form);
    const auto find = [&](int64_t first, int64_t last, const float** rows) {
      image_rows.find(image.const_data_ptr<float>(), first, last, rows);
    };
    const Panels panels(*kernels[static_cast<size_t>(i) % kernels.size()], form.groups, form.channels_out / form.groups,
                        form.kernel[0], form.kernel[1], form.channels_in / form.groups);
    const at::Tensor packed = pack(panels, weight, bias);
    const at::Tensor out = at::full(expected.sizes(), std::numeric_limits<float>::quiet_NaN());
    for (const int threads : {1, 3}) {
      const Threads scope(threads);
      TiledProduct(panels, image_rows.offsets(), image_rows.depth())
          .run(packed.const_data_ptr<float>(),
               {.count = image_rows.count(), .unit = image_rows.unit(), .elements = image_rows.elements(), .find = find},
               out.mutable_data_ptr<float>(), nullptr);
      ASSERT_TRUE(at::allclose(out, expected, kTolerance, kTolerance * 10))
          << "case " << i << ": image " << image.sizes() << ", weight " << weight.sizes() << ", stride "
          << c10::IntArrayRef(form.stride) << ", padding " << c10::IntArrayRef(form.padding) << ", dilation "
          << c10::IntArrayRef(form.dilation) << ", " << threads << " threads";
    }
  }
}

// A part of a row that is as wide as the image is not one of its rows: rows that are copied have a border.
TEST(Tiles, FindPartsOfRows) {
  const ConvolutionForm form{.images = 1,
                             .image = {20, 40},
                             .channels_in = 512,
                             .channels_out = 8,
                             .kernel = {3, 3},
                             .stride = {1, 1},
                             .padding = {1, 1},
                             .dilation = {1, 1},
                             .image_is_channels_last = false};
  const at::Tensor image = at::randn({1, 512, 20, 40});
  const ImageRows rows(form);
  ASSERT_EQ(rows.unit(), 1);
  constexpr int64_t kRow = 7;
  for (const auto& [left, right] : std::vector<std::pair<int64_t, int64_t>>{{1, 39}, {0, 40}, {3, 20}}) {
    std::vector<const float*> found(static_cast<size_t>(right - left));
    rows.find(image.const_data_ptr<float>(), kRow * 40 + left, kRow * 40 + right, found.data());
    for (int64_t y = 0; y < 3; ++y) {
      const float* first = found[0] + rows.offsets()[static_cast<size_t>(y)];
      const int64_t column = left - 1;
      EXPECT_EQ(first[511], column < 0 ? 0.0F : image[0][511][kRow - 1 + y][column].item<float>()) << left << ", row " << y;
      EXPECT_EQ(first[512], image[0][0][kRow - 1 + y][column + 1].item<float>()) << left << ", row " << y;
    }
  }
}

}  // namespace
}  // namespace sconce
