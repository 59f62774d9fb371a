// Convolutions by tiles: a product of the pixels that the kernel covers, and the weights.
#include "kernels/loops/forks.h"
#include "kernels/loops/transpose.h"
#include "kernels/packed/image_rows.h"
#include "kernels/packed/packed_convolution.h"
#include "kernels/packed/tiled_product.h"
#include "plan/large_blocks.h"

namespace sconce {
namespace {

class TiledConvolution final : public PackedConvolution, private PackedOperator {
 public:
  TiledConvolution(Bounds bounds, bool packs_each_run)
      : bounds_{bounds.least, bounds.most}, packs_each_run_(packs_each_run) {}

  void set_form(const ConvolutionForm& form) override {
    form_ = form;
    rows_ = ImageRows(form);
    product_ = TiledProduct(Panels(tile_kernels(), form.groups, form.channels_out / form.groups, form.kernel[0],
                                   form.kernel[1], form.channels_in / form.groups),
                            rows_.offsets(), rows_.depth());
    set_multiplications(form.multiplications());
    PackedOperator::set_form({1, form.channels_in, form.channels_out, form.groups, form.kernel[0], form.kernel[1],
                              form.weight_is_channels_last ? 1 : 0, form.has_padding() ? 1 : 0});
  }

  bool is_ready(const KernelArguments& arguments, const ConvolutionOperands& operands) override {
    if (!packs_each_run_) {
      return find(arguments, operands.weight, operands.bias);
    }
    const bool has_bias = operands.bias && arguments.is_tensor(*operands.bias);
    elements_ = {.weight = static_cast<const float*>(arguments.data(operands.weight)),
                 .bias = has_bias ? static_cast<const float*>(arguments.data(*operands.bias)) : nullptr};
    return ignores_padding(form_, elements_.weight);
  }

  void run(const float* image, float* out, const RowsFunction& then) override {
    c10::DataPtr packed;  // as long as the run
    if (packs_each_run_) {
      packed = allocate_large(static_cast<size_t>(product_.panels().elements()) * sizeof(float));
      pack(elements_, static_cast<float*>(packed.get()));
      packed_ = static_cast<const float*>(packed.get());
    }
    c10::DataPtr transposed;  // of this run alone: operators that run one after the other use the same memory
    if (!form_.result_is_channels_last) {
      transposed = allocate_large(static_cast<size_t>(form_.elements_out()) * sizeof(float));
    }
    auto* const result = form_.result_is_channels_last ? out : static_cast<float*>(transposed.get());
    const auto find_rows = [&](int64_t first, int64_t last, const float** rows) { rows_.find(image, first, last, rows); };
    product_.run(packed_, {.count = rows_.count(), .unit = rows_.unit(), .elements = rows_.elements(), .find = find_rows},
                 result, bounds_.data(), then);
    if (!form_.result_is_channels_last) {
      channels_first(result, out);
    }
  }

 private:
  bool make(PackedWeights& packed, WeightTensors tensors) override {
    packed_ = packed.fill_once(tensors, product_.panels().elements(), [&](float* to) { pack(elements_of(tensors), to); });
    return !form_.has_padding() || packed.are_finite();  // zeros around an image are multiplied
  }
  void drop() override { packed_ = nullptr; }

  void pack(WeightElements elements, float* to) const {
    const int64_t area = form_.kernel[0] * form_.kernel[1];
    const int64_t channels = form_.channels_in / form_.groups;
    const int64_t pixel = form_.weight_is_channels_last ? channels : 1;
    product_.panels().pack({.data = elements.weight,
                            .bias = elements.bias,
                            .column_distance = channels * area,
                            .group_distance = form_.channels_out / form_.groups * channels * area,
                            .row_distance = form_.kernel[1] * pixel,
                            .pixel_distance = pixel,
                            .channel_distance = form_.weight_is_channels_last ? 1 : area},
                           to);
  }

  void channels_first(const float* result, float* out) const {
    constexpr int64_t kBlock = 64;  // channels
    const int64_t channels = form_.channels_out;
    const int64_t pixels = form_.pixels_out();
    const int64_t blocks = (channels + kBlock - 1) / kBlock;
    fork_by_elements(form_.images * blocks, kBlock * pixels, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / blocks * channels * pixels;
        const int64_t first = i % blocks * kBlock;
        transpose(result + image + first, channels, pixels, std::min(kBlock, channels - first), out + image + first * pixels,
                  pixels);
      }
    });
  }

  const std::array<float, 2> bounds_;
  const bool packs_each_run_;
  ConvolutionForm form_;
  ImageRows rows_;
  TiledProduct product_;
  WeightElements elements_;  // of this run, which packs them
  const float* packed_ = nullptr;
};

}  // namespace

std::unique_ptr<PackedConvolution> make_tiled_convolution(Bounds bounds, bool packs_each_run) {
  return std::make_unique<TiledConvolution>(bounds, packs_each_run);
}

}  // namespace sconce
