#include "plan/prepared/packed/packed_convolution.h"

namespace sconce {
namespace {

// Returns whether XNNPACK's kernels are expected to be faster than LibTorch's call of oneDNN, set-up included.
bool is_faster_by_xnnpack(const ConvolutionForm& form) {
  // LibTorch's call costs about 30 us in any case. Beyond that, its kernels do about twice as much in the same time where
  // the channels of a group do not fill the registers, or are computed one by one. At more than 25 elements XNNPACK has no
  // kernel for single channels.
  constexpr int64_t kSmall = 1'200'000;
  constexpr int64_t kFewChannels = 24;
  // The time of LibTorch's call is worth so many elements transposed, and that of so many multiplications one more.
  constexpr int64_t kTransposed = 70'000;
  constexpr int64_t kMultiplicationsOfOne = 110;
  const int64_t transposed =
      (form.image_is_channels_last ? 0 : form.elements_in()) + (form.result_is_channels_last ? 0 : form.elements_out());
  if (transposed > kTransposed + form.multiplications() / kMultiplicationsOfOne) {
    return false;
  }
  if (form.is_depthwise()) {
    return form.kernel[0] * form.kernel[1] <= 25 && form.multiplications() <= kSmall;
  }
  return form.channels_out / form.groups >= kFewChannels || form.multiplications() <= kSmall;
}

}  // namespace

int64_t ConvolutionForm::size_out(size_t dim) const {
  const int64_t padded = image[dim] + 2 * padding[dim];
  return (padded - dilation[dim] * (kernel[dim] - 1) - 1) / stride[dim] + 1;
}

ConvolutionKernels fastest_kernels(const ConvolutionForm& form) {
  return suits_direct_loops(form)     ? ConvolutionKernels::kDirect
         : is_faster_by_xnnpack(form) ? ConvolutionKernels::kXnnpack
                                      : ConvolutionKernels::kLibTorch;
}

std::unique_ptr<PackedConvolution> make_packed_convolution(ConvolutionKernels kernels, Bounds bounds) {
  return kernels == ConvolutionKernels::kXnnpack  ? make_xnn_convolution(bounds)
         : kernels == ConvolutionKernels::kDirect ? make_direct_convolution(bounds)
                                                  : nullptr;
}

}  // namespace sconce
