// Convolutions of single pixels, by products of the weights and each image as they are.
#include "kernels/loops/forks.h"
#include "kernels/packed/gemm.h"
#include "kernels/packed/packed_convolution.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace sconce {
namespace {

class ProductConvolution final : public PackedConvolution {
 public:
  void set_form(const ConvolutionForm& form) override {
    form_ = form;
    const auto channels = static_cast<int>(form.channels_in);
    const auto pixels = static_cast<int>(form.pixels_in());
    product_ = Gemm({.leading = channels}, {.leading = pixels}, static_cast<int>(form.channels_out), pixels, channels,
                    /*is_exact=*/false);
  }

  bool is_ready(const KernelArguments& arguments, const ConvolutionOperands& operands) override {
    weight_ = static_cast<const float*>(arguments.data(operands.weight));
    const bool has_bias = operands.bias && arguments.is_tensor(*operands.bias);
    bias_ = has_bias ? static_cast<const float*>(arguments.data(*operands.bias)) : nullptr;
    return true;
  }

  void run(const float* image, float* out, const RowsFunction& /*then*/) override {
    const int64_t in = form_.channels_in * form_.pixels_in();
    const int64_t result = form_.channels_out * form_.pixels_out();
    const auto run_image = [&](int64_t i) { multiply(image + i * in, out + i * result); };
    if (form_.images < at::get_num_threads()) {  // the product has threads of its own
      for (int64_t i = 0; i < form_.images; ++i) {
        run_image(i);
      }
      return;
    }
    const int64_t of_image = form_.multiplications() / form_.images;
    fork_by_multiplications(form_.images, of_image, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        run_image(i);
      }
    });
  }

 private:
  void multiply(const float* image, float* out) const {
    if (bias_ == nullptr) {
      product_.run(weight_, image, nullptr, out);
      return;
    }
    for (int64_t channel = 0; channel < form_.channels_out; ++channel) {
      std::fill_n(out + channel * form_.pixels_out(), form_.pixels_out(), bias_[channel]);
    }
    product_.add(weight_, image, out);
  }

  ConvolutionForm form_;
  Gemm product_;
  const float* weight_ = nullptr;
  const float* bias_ = nullptr;
};

}  // namespace

bool suits_products(const ConvolutionForm& form) {
  const std::array<int64_t, 2> ones = {1, 1};
  return form.groups == 1 && form.kernel == ones && form.stride == ones && !form.has_padding() &&
         !form.image_is_channels_last && !form.result_is_channels_last &&
         tiles_are_faster(form.channels_out, form.pixels_in(), form.channels_in);
}

std::unique_ptr<PackedConvolution> make_product_convolution() { return std::make_unique<ProductConvolution>(); }

}  // namespace sconce
