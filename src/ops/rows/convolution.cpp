// Convolutions.
#include "ops/rows.h"

namespace sconce {

namespace {

constexpr std::string_view kConvolutionBackward = R"(
return convolution_gradients(
    grad, input, weight, stride, padding, dilation, False, [0] * len(stride), groups, needs)
)";
constexpr std::string_view kTransposedConvolutionBackward = R"(
return convolution_gradients(
    grad, input, weight, stride, padding, dilation, True, output_padding, groups, needs)
)";
constexpr std::string_view kGeneralConvolutionBackward = R"(
return convolution_gradients(
    grad, input, weight, stride, padding, dilation, transposed, output_padding, groups, needs)
)";

}  // namespace

std::span<const OpRow> convolution_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::conv1d",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{},
       .backward = kConvolutionBackward},
      {.name = "aten::conv1d",
       .overloads = {"padding"},
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{}},
      {.name = "aten::conv2d",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{},
       .backward = kConvolutionBackward},
      {.name = "aten::conv2d",
       .overloads = {"padding"},
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{}},
      {.name = "aten::conv3d",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{},
       .backward = kConvolutionBackward},
      {.name = "aten::conv3d",
       .overloads = {"padding"},
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{}},
      {.name = "aten::conv_tbc", .autocast = Autocast::kReduced},
      {.name = "aten::conv_transpose1d",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{.transposed = true},
       .backward = kTransposedConvolutionBackward},
      {.name = "aten::conv_transpose2d",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{.transposed = true},
       .backward = kTransposedConvolutionBackward},
      {.name = "aten::conv_transpose3d",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{.transposed = true},
       .backward = kTransposedConvolutionBackward},
      {.name = "aten::_convolution",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{.accepts_batches_only = true},
       .backward = kGeneralConvolutionBackward},
      {.name = "aten::convolution",
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{.accepts_batches_only = true},
       .backward = kGeneralConvolutionBackward},
      {.name = "aten::cudnn_convolution", .autocast = Autocast::kReduced},
      {.name = "aten::cudnn_convolution_transpose", .autocast = Autocast::kReduced},
  };
  return rows;
}

}  // namespace sconce
