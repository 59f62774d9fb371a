#include "kernels/packed/packed_convolution.h"

#include "kernels/loops/direct_loops.h"
#include "kernels/loops/forks.h"
#include "kernels/packed/block_convolution.h"

#include <algorithm>
#include <atomic>

namespace sconce {
namespace {

// Returns whether the channels of a group fill enough of a vector. LibTorch's call costs about 30 us in any case. The tiles
// multiply kSmall vectors in that time.
bool suits_tiles(const ConvolutionForm& form) {
  constexpr int64_t kSmall = 12'500;
  const int64_t of_group = form.channels_out / form.groups;
  return form.groups == 1 || of_group >= 4 || form.multiplications() / std::max<int64_t>(of_group, 1) <= kSmall;
}

// The same where each run packs the weights: an element takes the time of some multiplications.
bool suits_tiles_of_a_run(const ConvolutionForm& form) {
  constexpr int64_t kPixelsThatPay = 64;
  return direct_kernels() != nullptr && suits_tiles(form) && form.images * form.pixels_out() >= kPixelsThatPay;
}

}  // namespace

int64_t ConvolutionForm::size_out(size_t dim) const {
  const int64_t steps = image[dim] + 2 * padding[dim] - dilation[dim] * (kernel[dim] - 1) - 1;
  return steps < 0 ? 0 : steps / stride[dim] + 1;
}

bool ignores_padding(const ConvolutionForm& form, const float* weights) {
  return !form.has_padding() || are_finite(weights, form.channels_out * form.weights_of_output());
}

bool are_finite(const float* elements, int64_t count) {
  std::atomic<bool> result = true;
  fork_by_elements(count, 1, [&](int64_t begin, int64_t end) {
    if (!direct_kernels()->planes.are_finite(elements + begin, end - begin)) {
      result.store(false, std::memory_order_relaxed);
    }
  });
  return result;
}

ConvolutionKernels fastest_kernels(const ConvolutionForm& form, bool packs) {
  if (suits_lines(form)) {
    return ConvolutionKernels::kLines;
  }
  if (packs && suits_direct_loops(form)) {
    return ConvolutionKernels::kDirect;
  }
  if (suits_blocks(form)) {
    return ConvolutionKernels::kBlocks;
  }
  if (!packs) {
    return suits_products(form)         ? ConvolutionKernels::kProducts
           : suits_tiles_of_a_run(form) ? ConvolutionKernels::kTilesOfRun
                                        : ConvolutionKernels::kLibTorch;
  }
  return suits_tiles(form) ? ConvolutionKernels::kTiles : ConvolutionKernels::kLibTorch;
}

std::unique_ptr<PackedConvolution> make_packed_convolution(ConvolutionKernels kernels, Bounds bounds) {
  return kernels == ConvolutionKernels::kTiles        ? make_tiled_convolution(bounds, false)
         : kernels == ConvolutionKernels::kTilesOfRun ? make_tiled_convolution(bounds, true)
         : kernels == ConvolutionKernels::kDirect     ? make_direct_convolution(bounds)
         : kernels == ConvolutionKernels::kProducts   ? make_product_convolution()
         : kernels == ConvolutionKernels::kLines      ? make_line_convolution(bounds)
         : kernels == ConvolutionKernels::kBlocks     ? make_block_convolution(bounds)
                                                      : nullptr;
}

}  // namespace sconce
