// Convolutions.
#include "ops/rows.h"

namespace sconce {

namespace {

constexpr std::string_view kConvolutionBackward = R"(
return convolution_gradients(
    grad, input, weight, stride, padding, dilation, False, [0] * len(stride), groups, needs, records)
)";
constexpr std::string_view kTransposedConvolutionBackward = R"(
return convolution_gradients(
    grad, input, weight, stride, padding, dilation, True, output_padding, groups, needs, records)
)";
constexpr std::string_view kGeneralConvolutionBackward = R"(
return convolution_gradients(
    grad, input, weight, stride, padding, dilation, transposed, output_padding, groups, needs, records)
)";

// LibTorch's functions are missing, or take every input for a batch.
constexpr std::string_view kTransposedConvolutionSizes = R"(
def sizes(input: List[int], weight: List[int], bias: Optional[List[int]], stride: List[int], padding: List[int],
          output_padding: List[int], groups: int, dilation: List[int]):
    out = input.copy()
    first = len(input) - len(weight) + 2
    out[first - 1] = weight[1] * groups
    for i in range(len(weight) - 2):
        step = stride[i] if len(stride) > 1 else stride[0]
        pad = padding[i] if len(padding) > 1 else padding[0]
        more = output_padding[i] if len(output_padding) > 1 else output_padding[0]
        spread = dilation[i] if len(dilation) > 1 else dilation[0]
        out[first + i] = (input[first + i] - 1) * step - 2 * pad + spread * (weight[i + 2] - 1) + more + 1
    return out
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
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kTransposedConvolutionSizes},
       .affine = AffineRule{.transposed = true},
       .backward = kTransposedConvolutionBackward},
      {.name = "aten::conv_transpose2d",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kTransposedConvolutionSizes},
       .affine = AffineRule{.transposed = true},
       .backward = kTransposedConvolutionBackward},
      {.name = "aten::conv_transpose3d",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kTransposedConvolutionSizes},
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
