#include "kernels/packed/packed_convolution.h"

#include "kernels/loops/direct_loops.h"
#include "kernels/packed/block_convolution.h"

#include <algorithm>

namespace sconce {
namespace {

// Returns whether the channels of a group fill enough of a vector. LibTorch's call costs about 30 us in any case. The tiles
// multiply kSmall vectors in that time.
bool suits_tiles(const ConvolutionForm& form) {
  constexpr int64_t kSmall = 12'500;
  const int64_t of_group = form.channels_out / form.groups;
  return form.groups == 1 || of_group >= 4 || form.multiplications() / std::max<int64_t>(of_group, 1) <= kSmall;
}

}  // namespace

int64_t ConvolutionForm::size_out(size_t dim) const {
  const int64_t steps = image[dim] + 2 * padding[dim] - dilation[dim] * (kernel[dim] - 1) - 1;
  return steps < 0 ? 0 : steps / stride[dim] + 1;
}

bool ignores_padding(const ConvolutionForm& form, const float* weights) {
  return !form.has_padding() || direct_kernels()->planes.are_finite(weights, form.channels_out * form.weights_of_output());
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
    return suits_products(form) ? ConvolutionKernels::kProducts : ConvolutionKernels::kLibTorch;
  }
  return suits_tiles(form) ? ConvolutionKernels::kTiles : ConvolutionKernels::kLibTorch;
}

std::unique_ptr<PackedConvolution> make_packed_convolution(ConvolutionKernels kernels, Bounds bounds) {
  return kernels == ConvolutionKernels::kTiles      ? make_tiled_convolution(bounds)
         : kernels == ConvolutionKernels::kDirect   ? make_direct_convolution(bounds)
         : kernels == ConvolutionKernels::kProducts ? make_product_convolution()
         : kernels == ConvolutionKernels::kLines    ? make_line_convolution(bounds)
         : kernels == ConvolutionKernels::kBlocks   ? make_block_convolution(bounds)
                                                    : nullptr;
}

}  // namespace sconce
