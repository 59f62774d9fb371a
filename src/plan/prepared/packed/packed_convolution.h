// PackedConvolution: a convolution with packed weights, by XNNPACK.
#pragma once

#include "plan/prepared/packed/packed_weights.h"

#include <array>

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
  // XNNPACK computes channels-last. An image or result in the other order is transposed on the way.
  bool image_is_channels_last = true;
  bool result_is_channels_last = true;
  bool weight_is_channels_last = true;

  // The size of the result; less than 1 if the padded image is smaller than the kernel.
  int64_t size_out(size_t dim) const;
  int64_t elements_in() const { return images * channels_in * image[0] * image[1]; }
  int64_t elements_out() const { return images * channels_out * size_out(0) * size_out(1); }
  int64_t multiplications() const { return elements_out() * (channels_in / groups) * kernel[0] * kernel[1]; }
  bool is_depthwise() const { return groups == channels_in && groups == channels_out; }
};

// Returns whether XNNPACK's kernels are expected to be faster than LibTorch's call of oneDNN, set-up included.
bool is_faster_packed(const ConvolutionForm& form);

class PackedConvolution final : public PackedOperator {
 public:
  void set_form(const ConvolutionForm& form);
  // Packs the weights if they are worth it. Returns whether `run` may be called in this run. The arguments begin with image,
  // weight and bias.
  bool is_ready(const KernelArguments& arguments);
  void run(const float* image, float* out);

 private:
  xnn_status create(const float* weight, const float* bias, xnn_weights_cache_t cache, xnn_operator_t* created) override;

  ConvolutionForm form_;
  xnn_operator_t op_ = nullptr;  // of this run
  c10::DataPtr workspace_;
  c10::DataPtr image_;   // transposed
  c10::DataPtr result_;  // to be transposed
  int threads_ = 1;
};

}  // namespace sconce
