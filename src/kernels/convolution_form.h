// The forms of convolutions that kernels of our own compute.
#pragma once

#include "kernels/packed/packed_convolution.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

namespace sconce {

// The numbers of a call, as the operator takes them.
struct ConvolutionNumbers {
  c10::IValue stride;
  c10::IValue padding;
  c10::IValue dilation;
  int64_t groups = 1;
  bool is_transposed = false;
};

// Returns whether the tensor is a dense one of float32: of images, or rows of pixels, with channels.
bool is_batch(const at::Tensor& tensor);
// Returns whether LibTorch's result is channels-last, as the operands are.
bool lies_channels_last(const at::Tensor& input, const at::Tensor& weight);
// Returns the form of the convolution; a row of pixels is an image of one row. Returns nothing for operands and settings of
// the process for which LibTorch's operator computes, and for calls that it rejects.
std::optional<ConvolutionForm> form_of_convolution(const at::Tensor& input, const at::Tensor& weight,
                                                   const ConvolutionNumbers& numbers);
// `is_row`: the operands are rows of pixels.
std::vector<int64_t> sizes_of_result(const ConvolutionForm& form, bool is_row);

}  // namespace sconce
