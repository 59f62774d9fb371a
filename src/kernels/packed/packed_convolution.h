// PackedConvolution: a convolution with packed weights, by tiles or by direct loops, or of pixels by products.
#pragma once

#include "kernels/packed/packed_weights.h"

#include <array>
#include <limits>
#include <memory>
#include <optional>

namespace sconce {

// The numbers of a 2-d convolution: heights first. The weight has the sizes {channels_out, channels_in / groups, kernel}.
struct ConvolutionForm {
  int64_t images = 0;
  std::array<int64_t, 2> image = {};
  int64_t channels_in = 0;
  int64_t channels_out = 0;
  int64_t groups = 1;
  std::array<int64_t, 2> kernel = {};
  std::array<int64_t, 2> stride = {};
  std::array<int64_t, 2> padding = {};
  std::array<int64_t, 2> dilation = {};
  // Images and results are contiguous otherwise.
  bool image_is_channels_last = true;
  bool result_is_channels_last = true;
  bool weight_is_channels_last = true;

  // The size of the result; 0 if the padded image is smaller than the kernel.
  int64_t size_out(size_t dim) const;
  int64_t pixels_in() const { return image[0] * image[1]; }
  int64_t pixels_out() const { return size_out(0) * size_out(1); }
  int64_t elements_in() const { return images * channels_in * pixels_in(); }
  int64_t elements_out() const { return images * channels_out * pixels_out(); }
  int64_t weights_of_output() const { return channels_in / groups * kernel[0] * kernel[1]; }
  int64_t multiplications() const { return elements_out() * weights_of_output(); }
  bool has_padding() const { return padding[0] > 0 || padding[1] > 0; }
  bool is_depthwise() const { return groups == channels_in && groups == channels_out; }
};

// Where the operands are among the arguments of a kernel.
struct ConvolutionOperands {
  size_t image = 0;
  size_t weight = 1;
  std::optional<size_t> bias = 2;
};

// Clamps results. NaN stays NaN.
struct Bounds {
  float least = -std::numeric_limits<float>::infinity();
  float most = std::numeric_limits<float>::infinity();
};

// Belongs to one frame.
class PackedConvolution {
 public:
  virtual ~PackedConvolution() = default;
  virtual void set_form(const ConvolutionForm& form) = 0;
  // Packs the weights if they are worth it. Returns whether `run` may be called in this run.
  virtual bool is_ready(const KernelArguments& arguments, const ConvolutionOperands& operands) = 0;
  // `then`: see PreparedKernel::run_by_rows; the rows are the pixels of the result. Null unless that is channels-last.
  virtual void run(const float* image, float* out, const RowsFunction& then) = 0;
};

// The kernels that compute a convolution.
enum class ConvolutionKernels : uint8_t {
  kLibTorch,  // oneDNN's
  kTiles,
  kTilesOfRun,  // the same, for weights that change: each run packs them
  kDirect,      // direct_loops.h
  kProducts,    // of the weights as they are
  kLines,       // the same, channel by channel
  kBlocks,      // the same, block of channels by block
};
// Returns whether it does not matter that some of LibTorch's loops multiply weights by the zeros around an image, and others
// do not. Requires direct loops.
bool ignores_padding(const ConvolutionForm& form, const float* weights);
// Returns whether no element is infinite or NaN. Requires direct loops. Reads on LibTorch's intra-op threads.
bool are_finite(const float* elements, int64_t count);
// Returns the kernels that are expected to be the fastest, set-up included. `packs`: weights may be packed.
ConvolutionKernels fastest_kernels(const ConvolutionForm& form, bool packs);
// Returns null for those of LibTorch.
std::unique_ptr<PackedConvolution> make_packed_convolution(ConvolutionKernels kernels, Bounds bounds);

// Make a convolution of one kind. Its forms must be those for which `fastest_kernels` returns the kind.
std::unique_ptr<PackedConvolution> make_tiled_convolution(Bounds bounds, bool packs_each_run);
std::unique_ptr<PackedConvolution> make_direct_convolution(Bounds bounds);
std::unique_ptr<PackedConvolution> make_product_convolution();
std::unique_ptr<PackedConvolution> make_line_convolution(Bounds bounds);
std::unique_ptr<PackedConvolution> make_block_convolution(Bounds bounds);
// Returns whether the direct loops compute such a convolution faster than matrix products do.
bool suits_direct_loops(const ConvolutionForm& form);
// Returns whether products compute such a convolution faster than oneDNN does.
bool suits_products(const ConvolutionForm& form);
// The same of loops along the rows of single channels.
bool suits_lines(const ConvolutionForm& form);

}  // namespace sconce
