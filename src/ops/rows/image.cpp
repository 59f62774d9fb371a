// Pooling, resampling, padding.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> image_rows() {
  using enum ResultDtype;
  using enum Sharing;
  static const std::vector<OpRow> rows = {
      {.name = "aten::adaptive_avg_pool1d", .results = kFresh, .result = {.dtypes = {kFirst}}, .backward = R"(
if output_size[0] == 1:
    of_self = grad.expand(self.size()) / self.size(-1)
else:
    of_self = torch._adaptive_avg_pool2d_backward(grad.unsqueeze(-2), self.unsqueeze(-2)).squeeze(-2)
return (of_self,)
)"},
      {.name = "aten::adaptive_avg_pool2d",
       .results = kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .result = {.dtypes = {kFirst}},
       .backward = R"(
if output_size[0] == 1 and output_size[1] == 1:
    of_self = grad.expand(self.size()) / (self.size(-1) * self.size(-2))
else:
    of_self = torch._adaptive_avg_pool2d_backward(grad, self)
return (of_self,)
)"},
      {.name = "aten::adaptive_avg_pool3d", .results = kFresh, .result = {.dtypes = {kFirst}}, .backward = R"(
if output_size[0] == 1 and output_size[1] == 1 and output_size[2] == 1:
    of_self = grad.expand(self.size()) / (self.size(-1) * self.size(-2) * self.size(-3))
else:
    of_self = torch._adaptive_avg_pool3d_backward(grad, self)
return (of_self,)
)"},
      {.name = "aten::adaptive_max_pool2d", .backward = "(torch.adaptive_max_pool2d_backward(grad0, self, result1),)"},
      {.name = "aten::adaptive_max_pool3d", .backward = "(torch.adaptive_max_pool3d_backward(grad0, self, result1),)"},
      {.name = "aten::affine_grid_generator",
       .result = {.dtypes = {kFirst}, .sizes = R"(
def sizes(theta: List[int], size: List[int]):
    return [size[0]] + size[2:] + [len(size) - 2]
)"},
       .backward = "(torch.affine_grid_generator_backward(grad, size, align_corners),)"},
      {.name = "aten::avg_pool1d", .results = kFresh, .result = {.dtypes = {kFirst}}, .backward = R"(
step = stride if len(stride) > 0 else kernel_size
of_self = torch.avg_pool2d_backward(
    grad.unsqueeze(-2), self.unsqueeze(-2), [1, kernel_size[0]], [1, step[0]], [0, padding[0]],
    ceil_mode, count_include_pad, None)
return (of_self.squeeze(-2),)
)"},
      {.name = "aten::avg_pool2d",
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .result = {.dtypes = {kFirst}, .sizes = R"(
def sizes(self: List[int], kernel_size: List[int], stride: List[int], padding: List[int], ceil_mode: bool):
    out = self.copy()
    for i in range(2):
        at = len(self) - 2 + i
        kernel = kernel_size[i] if len(kernel_size) == 2 else kernel_size[0]
        step = kernel if len(stride) == 0 else (stride[i] if len(stride) == 2 else stride[0])
        pad = padding[i] if len(padding) == 2 else padding[0]
        if ceil_mode:
            longer = (self[at] + 2 * pad - kernel + step - 1) // step
            out[at] = longer if longer * step >= self[at] + pad else longer + 1
        else:
            out[at] = (self[at] + 2 * pad - kernel) // step + 1
    return out
)"},
       .backward = R"(
return (torch.avg_pool2d_backward(
    grad, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),)
)"},
      {.name = "aten::avg_pool3d", .backward = R"(
return (torch.avg_pool3d_backward(
    grad, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),)
)"},
      {.name = "aten::constant_pad_nd", .backward = "(torch.constant_pad_nd(grad, [-size for size in pad]),)"},
      {.name = "aten::grid_sampler",
       .results = kFresh,
       .result = {.dtypes = {kFirst}, .sizes = R"(
def sizes(input: List[int], grid: List[int]):
    return input[:2] + grid[1:-1]
)"},
       .backward = R"(
if input.dim() == 4:
    of_input, of_grid = torch.grid_sampler_2d_backward(
        grad, input, grid, interpolation_mode, padding_mode, align_corners, [needs[0], needs[1]])
else:
    of_input, of_grid = torch.grid_sampler_3d_backward(
        grad, input, grid, interpolation_mode, padding_mode, align_corners, [needs[0], needs[1]])
return (of_input, of_grid)
)"},
      {.name = "aten::max_pool1d",
       .results = kFresh,
       .result = {.dtypes = {kFirst}},
       .forward = R"(
assert max_pool1d_accepts(self, kernel_size, stride, padding, dilation, ceil_mode), str(torch.max_pool1d(
    self, kernel_size, stride, padding, dilation, ceil_mode))
result, indices = torch.max_pool1d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
return (result, indices)
)",
       .backward = R"(
step = stride if len(stride) > 0 else kernel_size
of_self = torch.max_pool2d_with_indices_backward(
    grad.unsqueeze(-2), self.unsqueeze(-2), [1, kernel_size[0]], [1, step[0]], [0, padding[0]], [1, dilation[0]],
    ceil_mode, saved_0.unsqueeze(-2))
return (of_self.squeeze(-2),)
)"},
      {.name = "aten::max_pool2d",
       .results = kFresh,
       .layout = Layout::kImages,
       .result = {.dtypes = {kFirst}},
       .forward = "torch.max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)",
       .backward = R"(
return (torch.max_pool2d_with_indices_backward(
    grad, self, kernel_size, stride, padding, dilation, ceil_mode, saved_0),)
)"},
      {.name = "aten::max_pool2d_with_indices", .backward = R"(
return (torch.max_pool2d_with_indices_backward(
    grad0, self, kernel_size, stride, padding, dilation, ceil_mode, result1),)
)"},
      {.name = "aten::max_pool3d",
       .results = kFresh,
       .result = {.dtypes = {kFirst}},
       .forward = "torch.max_pool3d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)",
       .backward = R"(
return (torch.max_pool3d_with_indices_backward(
    grad, self, kernel_size, stride, padding, dilation, ceil_mode, saved_0),)
)"},
      {.name = "aten::max_pool3d_with_indices", .backward = R"(
return (torch.max_pool3d_with_indices_backward(
    grad0, self, kernel_size, stride, padding, dilation, ceil_mode, result1),)
)"},
      {.name = "aten::pad",
       .result = {.dtypes = {kFirst}, .sizes = R"(
def sizes(self: List[int], pad: List[int]):
    out = self.copy()
    for i in range(len(pad) // 2):
        out[len(self) - 1 - i] = self[len(self) - 1 - i] + pad[2 * i] + pad[2 * i + 1]
    return out
)"},
       .backward = "(torch.constant_pad_nd(grad, [-size for size in pad]),)",
       .differentiable_if = "mode == \"constant\""},
      {.name = "aten::pixel_shuffle", .backward = "(torch.pixel_unshuffle(grad, upscale_factor),)"},
      {.name = "aten::pixel_unshuffle", .backward = "(torch.pixel_shuffle(grad, downscale_factor),)"},
      {.name = "aten::reflection_pad1d", .backward = "(torch.reflection_pad1d_backward(grad, self, padding),)"},
      {.name = "aten::reflection_pad2d", .backward = "(torch.reflection_pad2d_backward(grad, self, padding),)"},
      {.name = "aten::reflection_pad3d", .backward = "(torch.reflection_pad3d_backward(grad, self, padding),)"},
      {.name = "aten::replication_pad1d", .backward = "(torch.replication_pad1d_backward(grad, self, padding),)"},
      {.name = "aten::replication_pad2d", .backward = "(torch.replication_pad2d_backward(grad, self, padding),)"},
      {.name = "aten::replication_pad3d", .backward = "(torch.replication_pad3d_backward(grad, self, padding),)"},
      {.name = "aten::upsample_bicubic2d",
       .backward =
           "(torch.upsample_bicubic2d_backward(grad, output_size, self.size(), align_corners, scales_h, scales_w),)"},
      {.name = "aten::upsample_bicubic2d", .overloads = {"vec"}, .backward = R"(
return (torch.upsample_bicubic2d_backward(grad, grad.size()[2:], input.size(), align_corners,
    factor(scale_factors, 0), factor(scale_factors, 1)),)
)"},
      {.name = "aten::_upsample_bicubic2d_aa",
       .backward =
           "(torch._upsample_bicubic2d_aa_backward(grad, output_size, self.size(), align_corners, scales_h, scales_w),)"},
      {.name = "aten::_upsample_bicubic2d_aa", .overloads = {"vec"}, .backward = R"(
return (torch._upsample_bicubic2d_aa_backward(grad, grad.size()[2:], input.size(), align_corners,
    factor(scale_factors, 0), factor(scale_factors, 1)),)
)"},
      {.name = "aten::upsample_bilinear2d",
       .layout = Layout::kImages,
       .backward =
           "(torch.upsample_bilinear2d_backward(grad, output_size, self.size(), align_corners, scales_h, scales_w),)"},
      {.name = "aten::upsample_bilinear2d", .overloads = {"vec"}, .layout = Layout::kImages, .backward = R"(
return (torch.upsample_bilinear2d_backward(grad, grad.size()[2:], input.size(), align_corners,
    factor(scale_factors, 0), factor(scale_factors, 1)),)
)"},
      {.name = "aten::_upsample_bilinear2d_aa",
       .backward =
           "(torch._upsample_bilinear2d_aa_backward(grad, output_size, self.size(), align_corners, scales_h, scales_w),)"},
      {.name = "aten::_upsample_bilinear2d_aa", .overloads = {"vec"}, .backward = R"(
return (torch._upsample_bilinear2d_aa_backward(grad, grad.size()[2:], input.size(), align_corners,
    factor(scale_factors, 0), factor(scale_factors, 1)),)
)"},
      {.name = "aten::upsample_linear1d",
       .backward = "(torch.upsample_linear1d_backward(grad, output_size, self.size(), align_corners, scales),)"},
      {.name = "aten::upsample_linear1d",
       .overloads = {"vec"},
       .backward = "(torch.upsample_linear1d_backward(grad, grad.size()[2:], input.size(), align_corners, "
                   "factor(scale_factors, 0)),)"},
      {.name = "aten::upsample_nearest1d",
       .backward = "(torch.upsample_nearest1d_backward(grad, output_size, self.size(), scales),)"},
      {.name = "aten::upsample_nearest1d",
       .overloads = {"vec"},
       .backward = "(torch.upsample_nearest1d_backward(grad, grad.size()[2:], input.size(), factor(scale_factors, 0)),)"},
      {.name = "aten::upsample_nearest2d",
       .layout = Layout::kImages,
       .backward = "(torch.upsample_nearest2d_backward(grad, output_size, self.size(), scales_h, scales_w),)"},
      {.name = "aten::upsample_nearest2d", .overloads = {"vec"}, .layout = Layout::kImages, .backward = R"(
return (torch.upsample_nearest2d_backward(grad, grad.size()[2:], input.size(),
    factor(scale_factors, 0), factor(scale_factors, 1)),)
)"},
      {.name = "aten::upsample_nearest3d",
       .backward = "(torch.upsample_nearest3d_backward(grad, output_size, self.size(), scales_d, scales_h, scales_w),)"},
      {.name = "aten::upsample_nearest3d", .overloads = {"vec"}, .backward = R"(
return (torch.upsample_nearest3d_backward(grad, grad.size()[2:], input.size(),
    factor(scale_factors, 0), factor(scale_factors, 1), factor(scale_factors, 2)),)
)"},
      {.name = "aten::_upsample_nearest_exact1d",
       .backward = "(torch._upsample_nearest_exact1d_backward(grad, output_size, self.size(), scales),)"},
      {.name = "aten::_upsample_nearest_exact1d",
       .overloads = {"vec"},
       .backward =
           "(torch._upsample_nearest_exact1d_backward(grad, grad.size()[2:], input.size(), factor(scale_factors, 0)),)"},
      {.name = "aten::_upsample_nearest_exact2d",
       .backward = "(torch._upsample_nearest_exact2d_backward(grad, output_size, self.size(), scales_h, scales_w),)"},
      {.name = "aten::_upsample_nearest_exact2d", .overloads = {"vec"}, .backward = R"(
return (torch._upsample_nearest_exact2d_backward(grad, grad.size()[2:], input.size(),
    factor(scale_factors, 0), factor(scale_factors, 1)),)
)"},
      {.name = "aten::_upsample_nearest_exact3d",
       .backward =
           "(torch._upsample_nearest_exact3d_backward(grad, output_size, self.size(), scales_d, scales_h, scales_w),)"},
      {.name = "aten::_upsample_nearest_exact3d", .overloads = {"vec"}, .backward = R"(
return (torch._upsample_nearest_exact3d_backward(grad, grad.size()[2:], input.size(),
    factor(scale_factors, 0), factor(scale_factors, 1), factor(scale_factors, 2)),)
)"},
      {.name = "aten::upsample_trilinear3d",
       .backward = "(torch.upsample_trilinear3d_backward(grad, output_size, self.size(), align_corners, scales_d, scales_h, "
                   "scales_w),)"},
      {.name = "aten::upsample_trilinear3d", .overloads = {"vec"}, .backward = R"(
return (torch.upsample_trilinear3d_backward(grad, grad.size()[2:], input.size(), align_corners,
    factor(scale_factors, 0), factor(scale_factors, 1), factor(scale_factors, 2)),)
)"},
  };
  return rows;
}

}  // namespace sconce
