#include "plan/prepared/packed/packed_convolution.h"

#include <algorithm>

namespace sconce {
namespace {

// Returns whether XNNPACK's kernels are expected to be faster than LibTorch's call of oneDNN, set-up included.
bool is_faster_by_xnnpack(const ConvolutionForm& form) {
  // LibTorch's call costs about 30 us in any case. Beyond that, its kernels do about twice as much in the same time where
  // the channels of a group do not fill the registers, or are computed one by one.
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
    // XNNPACK has kernels for so many weights. For others it multiplies elements that the window does not hold by zero,
    // which gives NaN for those that are not finite.
    constexpr std::array<int64_t, 4> kAreas = {3, 4, 9, 25};
    const bool has_kernel = std::find(kAreas.begin(), kAreas.end(), form.weights_of_output()) != kAreas.end();
    return has_kernel && form.multiplications() <= kSmall;
  }
  return form.channels_out / form.groups >= kFewChannels || form.multiplications() <= kSmall;
}

}  // namespace

int64_t ConvolutionForm::size_out(size_t dim) const {
  const int64_t steps = image[dim] + 2 * padding[dim] - dilation[dim] * (kernel[dim] - 1) - 1;
  return steps < 0 ? 0 : steps / stride[dim] + 1;
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
