#include "kernels/convolution_form.h"

#include "kernels/float32_precision.h"

#include <algorithm>

namespace sconce {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

// LibTorch inserts a dimension before the last one, and then asks how the image lies.
bool is_channels_last_row(const at::Tensor& rows) {
  return c10::is_channels_last_strides_2d(
      c10::IntArrayRef{rows.size(0), rows.size(1), 1, rows.size(2)},
      c10::IntArrayRef{rows.stride(0), rows.stride(1), rows.size(2) * rows.stride(2), rows.stride(2)});
}

// Reads the numbers of two dimensions, or of the columns alone; one number stands for both. Returns false for numbers that
// LibTorch rejects.
bool read_numbers(const c10::IValue& value, bool is_row, int64_t least, std::array<int64_t, 2>& numbers) {
  if (!value.isIntList()) {
    return false;
  }
  const auto given = value.toIntVector();
  if (given.size() != 1 && (is_row || given.size() != 2)) {
    return false;
  }
  numbers = {is_row ? least : given.front(), given.back()};  // rows: stride 1, padding 0, dilation 1
  return std::all_of(given.begin(), given.end(), [least](int64_t number) { return number >= least; });
}

}  // namespace

bool is_batch(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.numel() > 0 &&
         (tensor.dim() == 3 ? tensor.is_contiguous() && !is_channels_last_row(tensor)
                            : tensor.dim() == 4 && (tensor.is_contiguous() || tensor.is_contiguous(kLast)));
}

bool lies_channels_last(const at::Tensor& input, const at::Tensor& weight) {
  return input.dim() == 4 && (input.suggest_memory_format() == kLast || weight.suggest_memory_format() == kLast);
}

std::optional<ConvolutionForm> form_of_convolution(const at::Tensor& input, const at::Tensor& weight,
                                                   const ConvolutionNumbers& numbers) {
  if (numbers.is_transposed || !is_batch(input) || !is_batch(weight) || input.dim() != weight.dim() ||
      !at::globalContext().userEnabledMkldnn() || !computes_in_float32(at::Float32Op::CONV)) {
    return std::nullopt;
  }
  const bool is_row = input.dim() == 3;
  ConvolutionForm form{.images = input.size(0),
                       .image = {is_row ? 1 : input.size(2), input.size(-1)},
                       .channels_in = input.size(1),
                       .channels_out = weight.size(0),
                       .groups = numbers.groups,
                       .kernel = {is_row ? 1 : weight.size(2), weight.size(-1)}};
  if (!read_numbers(numbers.stride, is_row, 1, form.stride) || !read_numbers(numbers.padding, is_row, 0, form.padding) ||
      !read_numbers(numbers.dilation, is_row, 1, form.dilation) || form.groups < 1 || form.channels_in % form.groups != 0 ||
      form.channels_out % form.groups != 0 || weight.size(1) != form.channels_in / form.groups || form.size_out(0) < 1 ||
      form.size_out(1) < 1) {
    return std::nullopt;
  }
  form.image_is_channels_last = !is_row && input.is_contiguous(kLast);
  form.weight_is_channels_last = !is_row && weight.is_contiguous(kLast);
  form.result_is_channels_last = lies_channels_last(input, weight) || form.channels_out == 1 || form.pixels_out() == 1;
  return form;
}

std::vector<int64_t> sizes_of_result(const ConvolutionForm& form, bool is_row) {
  std::vector<int64_t> sizes = {form.images, form.channels_out, form.size_out(0), form.size_out(1)};
  if (is_row) {
    sizes.erase(sizes.begin() + 2);
  }
  return sizes;
}

}  // namespace sconce
