// Depthwise convolutions of rows of pixels, channel by channel, with the weights as they are.
#include "kernels/loops/direct_loops.h"
#include "kernels/loops/forks.h"
#include "kernels/packed/packed_convolution.h"
#include "kernels/packed/tiled_product.h"

#include <algorithm>

namespace sconce {
namespace {

class LineConvolution final : public PackedConvolution {
 public:
  explicit LineConvolution(Bounds bounds) : bounds_(bounds) {}

  void set_form(const ConvolutionForm& form) override { form_ = form; }

  bool is_ready(const KernelArguments& arguments, const ConvolutionOperands& operands) override {
    weights_ = static_cast<const float*>(arguments.data(operands.weight));
    const bool has_bias = operands.bias && arguments.is_tensor(*operands.bias);
    bias_ = has_bias ? static_cast<const float*>(arguments.data(*operands.bias)) : nullptr;
    return ignores_padding(form_, weights_);
  }

  void run(const float* image, float* out, const RowsFunction& /*then*/) override {
    const int64_t lines = form_.images * form_.channels_out;
    const int64_t of_line = std::max<int64_t>(form_.multiplications() / lines, 1);
    fork_by_multiplications(lines, of_line, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        direct_kernels()->depthwise_line(line(i, image, out));
      }
    });
  }

 private:
  // `i`: of the channels of all images.
  LineOfConvolution line(int64_t i, const float* image, float* out) const {
    const int64_t channel = i % form_.channels_out;
    return {.image = image + i * form_.image[1],
            .weights = weights_ + channel * form_.kernel[1],
            .out = out + i * form_.size_out(1),
            .bias = bias_ != nullptr ? bias_[channel] : 0.0F,
            .width = form_.image[1],
            .out_width = form_.size_out(1),
            .kernel = form_.kernel[1],
            .dilation = form_.dilation[1],
            .padding = form_.padding[1],
            .least = bounds_.least,
            .most = bounds_.most};
  }

  const Bounds bounds_;
  ConvolutionForm form_;
  const float* weights_ = nullptr;
  const float* bias_ = nullptr;
};

}  // namespace

bool suits_lines(const ConvolutionForm& form) {
  return direct_kernels() != nullptr && form.is_depthwise() && !form.image_is_channels_last &&
         !form.result_is_channels_last && form.image[0] == 1 && form.kernel[0] == 1 && form.padding[0] == 0 &&
         form.stride[1] == 1;
}

std::unique_ptr<PackedConvolution> make_line_convolution(Bounds bounds) { return std::make_unique<LineConvolution>(bounds); }

}  // namespace sconce
