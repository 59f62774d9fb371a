// Convolutions of weights that change and their gradients, as prepared plans compute them: the results of LibTorch.
#include "tests/kernels/prepared_function.h"
#include "tests/support/threads.h"

#include "kernels/convolution_form.h"
#include "kernels/loops/direct_loops.h"
#include "kernels/packed/tiled_gradients.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace sconce {
namespace {

using testing::expect_alike;
using testing::optional;
using testing::prepared_function;
using testing::Shape;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

struct ConvolutionCase {
  Shape image;
  Shape weight;
  Shape stride;
  Shape padding;
  Shape dilation;
};

const std::vector<ConvolutionCase>& depthwise_cases() {
  static const std::vector<ConvolutionCase> all = {
      {{2, 20, 9, 11}, {20, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {{3, 16, 12, 12}, {16, 1, 5, 5}, {2, 2}, {2, 2}, {1, 1}},
      {{1, 40, 16, 16}, {40, 1, 7, 7}, {1, 1}, {3, 3}, {1, 1}},
      {{2, 33, 4, 4}, {33, 1, 7, 7}, {1, 1}, {3, 3}, {1, 1}},  // few taps read something
      {{5, 17, 2, 2}, {17, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 8, 15, 10}, {8, 1, 2, 4}, {3, 2}, {1, 0}, {1, 1}},
      {{2, 8, 15, 10}, {8, 1, 1, 1}, {2, 3}, {0, 0}, {1, 1}},  // most pixels are read by no tap
      {{2, 5, 14, 13}, {5, 1, 3, 3}, {1, 1}, {2, 4}, {2, 3}},
      {{1, 3, 9, 9}, {3, 1, 3, 3}, {2, 2}, {4, 4}, {2, 2}},
      {{2, 6, 8, 8}, {6, 1, 3, 3}, {1, 1}, {5, 5}, {1, 1}},     // some positions read padding alone
      {{2, 4, 3, 3}, {4, 1, 3, 3}, {1, 1}, {0, 0}, {1, 1}},     // one pixel
      {{20, 18, 6, 5}, {18, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}},  // many images
      {{2, 1, 9, 11}, {1, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 64, 1, 50}, {64, 1, 1, 9}, {1, 1}, {0, 4}, {1, 1}},
      {{2, 24, 51}, {24, 1, 3}, {1}, {4}, {4}},
      {{3, 24, 30}, {24, 1, 31}, {2}, {15}, {1}},
      {{2, 7, 5}, {7, 1, 2}, {2}, {0}, {1}},
  };
  return all;
}

const std::vector<ConvolutionCase>& tiled_cases() {
  static const std::vector<ConvolutionCase> all = {
      {{3, 24, 19, 22}, {40, 24, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 16, 31, 33}, {56, 16, 3, 3}, {2, 2}, {1, 1}, {1, 1}},
      {{2, 20, 30, 29}, {17, 20, 4, 5}, {3, 2}, {2, 0}, {1, 1}},
      {{2, 24, 40, 41}, {64, 24, 1, 1}, {2, 2}, {0, 0}, {1, 1}},  // most pixels are read by no tap
      {{1, 20, 28, 31}, {33, 20, 3, 3}, {1, 1}, {2, 4}, {2, 3}},
      {{2, 20, 28, 31}, {24, 20, 3, 3}, {2, 2}, {4, 4}, {2, 2}},
      {{3, 40, 65, 61}, {48, 40, 3, 4}, {4, 3}, {5, 4}, {6, 2}},
      {{2, 16, 24, 24}, {24, 16, 3, 3}, {1, 1}, {5, 5}, {1, 1}},  // some positions read padding alone
      {{4, 64, 24, 18}, {96, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}},  // groups
      {{2, 48, 24, 18}, {72, 16, 5, 3}, {2, 1}, {2, 1}, {1, 1}},
      {{40, 64, 7, 6}, {80, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}},      // many images
      {{12, 512, 20, 20}, {16, 512, 3, 3}, {1, 1}, {1, 1}, {1, 1}},  // more than are copied together
      {{70, 96, 3, 3}, {48, 96, 3, 3}, {1, 1}, {0, 0}, {1, 1}},      // one pixel
      {{2, 40, 60, 50}, {2, 40, 5, 5}, {1, 1}, {2, 2}, {1, 1}},      // few channels
      {{2, 3, 60, 50}, {33, 3, 5, 5}, {1, 1}, {2, 2}, {1, 1}},
      {{3, 40, 90}, {48, 40, 5}, {1}, {2}, {1}},
      {{5, 64, 191}, {96, 32, 7}, {3}, {9}, {2}},
  };
  return all;
}

std::vector<ConvolutionCase> all_cases() {
  std::vector<ConvolutionCase> all = depthwise_cases();
  all.insert(all.end(), tiled_cases().begin(), tiled_cases().end());
  return all;
}

int64_t groups_of(const ConvolutionCase& of) { return of.image[1] / of.weight[1]; }

std::string text_of(const Shape& numbers) {
  std::string text = "[";
  for (const int64_t number : numbers) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  }
  return text + "]";
}

std::string numbers_of(const ConvolutionCase& of) {
  return text_of(of.stride) + ", " + text_of(of.padding) + ", " + text_of(of.dilation) + ", False, " +
         text_of(Shape(of.stride.size(), 0)) + ", " + std::to_string(groups_of(of));
}

std::unique_ptr<Plan> plan_of_gradients(const ConvolutionCase& of, const std::string& mask, const std::string& results) {
  return prepared_function(
      "def f(grad: Tensor, input: Tensor, weight: Tensor):\n"
      "    x, w, b = torch.convolution_backward(grad, input, weight, [weight.size(0)], " +
      numbers_of(of) + ", " + mask + ")\n    return " + results + "\n");
}

struct Tensors {
  at::Tensor image, weight, gradient;
};

Tensors random_tensors(const ConvolutionCase& of) {
  const at::Tensor image = at::randn(of.image);
  // All results are about 1, the gradients of weights about 10.
  const at::Tensor weight =
      at::randn(of.weight) / std::sqrt(static_cast<double>(c10::multiply_integers(of.weight) / of.weight[0]));
  const Shape zeros(of.stride.size(), 0);
  const at::Tensor result =
      at::convolution(image, weight, {}, of.stride, of.padding, of.dilation, false, zeros, groups_of(of));
  return {image, weight, at::randn_like(result) / 8};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients_of(const ConvolutionCase& of, const Tensors& tensors,
                                                            std::array<bool, 3> mask = {true, true, true}) {
  return at::convolution_backward(tensors.gradient, tensors.image, tensors.weight, at::IntArrayRef{of.weight[0]}, of.stride,
                                  of.padding, of.dilation, false, Shape(of.stride.size(), 0), groups_of(of), mask);
}

void expect_all_close(const ConvolutionCase& of, const Tensors& tensors, const Plan& plan, const std::string& what) {
  const auto [image, weight, bias] = gradients_of(of, tensors);
  for (int run = 0; run < 2; ++run) {
    const c10::IValue results = testing::run(plan, {tensors.gradient, tensors.image, tensors.weight});
    const auto& got = results.toTupleRef().elements();
    const std::string where = text_of(of.image) + " by " + text_of(of.weight) + ", " + what + ", of ";
    expect_alike(got[0].toTensor(), image, where + "the image");
    expect_alike(got[1].toTensor(), weight, where + "the weight");
    expect_alike(got[2].toTensor(), bias, where + "the bias");
  }
}

TEST(ConvolutionGradients, AreThoseOfLibTorchInAnyLayout) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  for (const int count : {1, 2}) {
    const testing::Threads scope(count);
    for (const ConvolutionCase& of : all_cases()) {
      const auto plan = plan_of_gradients(of, "[True, True, True]", "x, w, b");
      const Tensors tensors = random_tensors(of);
      expect_all_close(of, tensors, *plan, "contiguous");
      if (of.image.size() == 4) {
        expect_all_close(of, {tensors.image.contiguous(kLast), tensors.weight, tensors.gradient.contiguous(kLast)}, *plan,
                         "channels-last");
        expect_all_close(of, {tensors.image.contiguous(kLast), tensors.weight, tensors.gradient}, *plan,
                         "image channels-last");
        expect_all_close(of, {tensors.image, tensors.weight, tensors.gradient.contiguous(kLast)}, *plan,
                         "gradient channels-last");
        expect_all_close(of, {tensors.image, tensors.weight.clone(kLast), tensors.gradient}, *plan, "weight channels-last");
      }
      expect_all_close(of, {tensors.image, tensors.weight, at::ones({}).expand(tensors.gradient.sizes())}, *plan,
                       "gradient expanded");
    }
  }
}

TEST(ConvolutionGradients, AreUndefinedWhereTheyAreNotAskedFor) {
  const at::NoGradGuard no_grad;
  at::manual_seed(4);
  for (const ConvolutionCase& of : {depthwise_cases().front(), tiled_cases().front()}) {
    const Tensors tensors = random_tensors(of);
    for (int bits = 1; bits < 8; ++bits) {
      const std::array<bool, 3> mask = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
      std::string text = "[";
      std::string asked;
      for (size_t i = 0; i < mask.size(); ++i) {
        text += std::string(mask[i] ? "True" : "False") + (i < 2 ? ", " : "]");
        asked += mask[i] ? std::string(1, "xwb"[i]) + ", " : "";
      }
      const auto [image, weight, bias] = gradients_of(of, tensors, mask);
      const std::vector<at::Tensor> expected = {image, weight, bias};
      for (const bool takes_all : {false, true}) {
        const auto plan = plan_of_gradients(of, text, takes_all ? "x, w, b" : "(" + asked + ")");
        const c10::IValue results = testing::run(*plan, {tensors.gradient, tensors.image, tensors.weight});
        size_t place = 0;
        for (size_t i = 0; i < mask.size(); ++i) {
          if (takes_all || mask[i]) {
            const at::Tensor got = results.toTupleRef().elements()[place++].toTensor();
            ASSERT_EQ(got.defined(), expected[i].defined()) << text;
            if (got.defined()) {
              expect_alike(got, expected[i], text);
            }
          }
        }
      }
    }
  }
}

// Some of LibTorch's loops multiply the zeros around an image, and make NaN of an infinity there. None makes fewer.
TEST(ConvolutionGradients, HaveInfinitiesWhereLibTorchHas) {
  const at::NoGradGuard no_grad;
  at::manual_seed(5);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const ConvolutionCase& of : all_cases()) {
    const auto plan = plan_of_gradients(of, "[True, True, True]", "x, w, b");
    for (const int where : {0, 1, 2}) {
      Tensors tensors = random_tensors(of);
      (where == 0 ? tensors.gradient : where == 1 ? tensors.image : tensors.weight).view(-1)[-1] = infinity;
      const auto [image, weight, bias] = gradients_of(of, tensors);
      const c10::IValue results = testing::run(*plan, {tensors.gradient, tensors.image, tensors.weight});
      const std::vector<at::Tensor> expected = {image, weight, bias};
      for (size_t i = 0; i < expected.size(); ++i) {
        const std::string what =
            text_of(of.image) + ", infinity in " + std::to_string(where) + ", gradient " + std::to_string(i);
        const at::Tensor got = results.toTupleRef().elements()[i].toTensor();
        const at::Tensor is_finite = expected[i].isfinite();
        EXPECT_TRUE(at::allclose(got.masked_select(is_finite), expected[i].masked_select(is_finite), 1e-4, 1e-4)) << what;
        const bool reads_padding_alone = of.padding.back() >= of.weight.back();
        EXPECT_TRUE(reads_padding_alone || got.isfinite().all().item<bool>() == is_finite.all().item<bool>()) << what;
      }
    }
  }
}

// The forward direction, with weights that are not packed.
TEST(Convolutions, OfWeightsThatChangeAreThoseOfLibTorch) {
  const at::NoGradGuard no_grad;
  at::manual_seed(6);
  for (const ConvolutionCase& of : all_cases()) {
    const auto plan = prepared_function(
        "def f(x: Tensor, w: Tensor, b: Optional[Tensor]):\n"
        "    return torch.convolution(x, w, b, " +
        numbers_of(of) + ")\n");
    const Tensors tensors = random_tensors(of);
    for (const bool has_infinities : {false, true}) {
      if (has_infinities) {
        tensors.weight.view(-1)[0] = std::numeric_limits<float>::infinity();
      }
      for (const at::Tensor& bias : {at::Tensor(), at::randn({of.weight[0]})}) {
        for (const bool is_last : {false, true}) {
          const at::Tensor image = is_last && of.image.size() == 4 ? tensors.image.contiguous(kLast) : tensors.image;
          const at::Tensor expected = at::convolution(image, tensors.weight, bias, of.stride, of.padding, of.dilation, false,
                                                      Shape(of.stride.size(), 0), groups_of(of));
          for (int run = 0; run < 2; ++run) {
            const c10::IValue got = testing::run(*plan, {image, tensors.weight, optional(bias)});
            expect_alike(got.toTensor(), expected, text_of(of.image) + (has_infinities ? ", infinities" : ""));
          }
        }
      }
    }
  }
}

// Gradients of the loops themselves: the plans above compute the same if the loops refuse.
TEST(ConvolutionGradients, AreComputedByLoopsOrTiles) {
  if (direct_kernels() == nullptr) {
    GTEST_SKIP() << "the processor has no vectors for direct loops";
  }
  const at::NoGradGuard no_grad;
  at::manual_seed(7);
  for (const ConvolutionCase& of : all_cases()) {
    const Tensors tensors = random_tensors(of);
    const auto form =
        form_of_convolution(tensors.image, tensors.weight,
                            {.stride = of.stride, .padding = of.padding, .dilation = of.dilation, .groups = groups_of(of)});
    ASSERT_TRUE(form) << text_of(of.image);
    const bool is_depthwise = form->is_depthwise();
    ASSERT_TRUE(is_depthwise ? suits_blocks(*form) : suits_tiled_gradients(*form)) << text_of(of.image);
    const at::Tensor of_image = at::full_like(tensors.image, std::nan(""));
    const at::Tensor of_weight = at::full_like(tensors.weight, std::nan(""));
    const at::Tensor of_bias = at::full({of.weight[0]}, std::nan(""));
    ConvolutionForm contiguous = *form;
    contiguous.image_is_channels_last = contiguous.result_is_channels_last = false;
    const auto compute = is_depthwise ? compute_gradients : compute_gradients_by_tiles;
    compute(contiguous, {.gradient = tensors.gradient.const_data_ptr<float>(),
                         .image = tensors.image.const_data_ptr<float>(),
                         .weight = tensors.weight.const_data_ptr<float>(),
                         .of_image = of_image.mutable_data_ptr<float>(),
                         .of_weight = of_weight.mutable_data_ptr<float>(),
                         .of_bias = of_bias.mutable_data_ptr<float>()});
    const auto [image, weight, bias] = gradients_of(of, tensors);
    EXPECT_TRUE(at::allclose(of_image, image, 1e-4, 1e-4)) << text_of(of.image);
    EXPECT_TRUE(at::allclose(of_weight, weight, 1e-4, 1e-4)) << text_of(of.image);
    EXPECT_TRUE(at::allclose(of_bias, bias, 1e-4, 1e-4)) << text_of(of.image);
  }
}

}  // namespace
}  // namespace sconce
