// Convolutions by direct loops: depthwise ones, and those of images with few channels. Of these a matrix product would
// multiply too few numbers per element that it gathers.
#include "kernels/loops/direct_loops.h"
#include "kernels/loops/forks.h"
#include "kernels/packed/packed_convolution.h"
#include "kernels/packed/tiled_product.h"

#include <algorithm>
#include <array>
#include <limits>

namespace sconce {
namespace {

class DirectConvolution final : public PackedConvolution, private PackedOperator {
 public:
  explicit DirectConvolution(Bounds bounds) : bounds_(bounds) {}

  void set_form(const ConvolutionForm& form) override {
    form_ = form;
    rows_ = form.is_depthwise() ? depthwise_rows() : rows_of_few_channels();
    set_multiplications(form.multiplications());
    PackedOperator::set_form({2, form.channels_in, form.channels_out, form.groups, form.kernel[0], form.kernel[1],
                              form.weight_is_channels_last ? 1 : 0, form.has_padding() ? 1 : 0});
  }

  bool is_ready(const KernelArguments& arguments, const ConvolutionOperands& operands) override {
    has_bias_ = operands.bias && arguments.is_tensor(*operands.bias);
    return find(arguments, operands.weight, operands.bias);
  }

  void run(const float* image, float* out, const RowsFunction& then) override {
    const int64_t rows = form_.images * form_.size_out(0);
    const int64_t of_row = form_.multiplications() / rows;
    const DirectLoops loops = loops_of(image, out);
    fork_by_multiplications(rows, of_row, [&](int64_t begin, int64_t end) { run_rows(loops, begin, end, then); });
  }

 private:
  void run_rows(const DirectLoops& loops, int64_t first, int64_t last, const RowsFunction& then) const {
    constexpr int64_t kElementsTogether = 32 * 1024;
    const int64_t width = form_.size_out(1);
    const int64_t step = then ? std::max<int64_t>(1, kElementsTogether / (width * form_.channels_out)) : last - first;
    for (int64_t row = first; row < last; row += step) {
      const int64_t end = std::min(row + step, last);
      rows_(loops, row, end);
      if (then) {
        then(row * width, end * width);
      }
    }
  }

  DirectRows depthwise_rows() const {
    // The more pixels a loop computes at a time, the less it loads.
    struct Step {
      int64_t pixels;
      double cost_of_pixel;
    };
    constexpr std::array<Step, 3> kSteps = {Step{7, 1}, Step{4, 1.15}, Step{1, 2.5}};
    const int64_t width = form_.size_out(1);
    const auto cost = [&](const Step& step) {
      return step.pixels > width
                 ? std::numeric_limits<double>::infinity()
                 : static_cast<double>((width + step.pixels - 1) / step.pixels * step.pixels) * step.cost_of_pixel;
    };
    const auto best = std::ranges::min_element(kSteps, [&](const Step& a, const Step& b) { return cost(a) < cost(b); });
    return direct_kernels()->depthwise[(form_.kernel[1] - 3) / 2].rows[form_.stride[1] - 1][best - kSteps.begin()];
  }

  DirectRows rows_of_few_channels() const {
    const DirectKernels& kernels = *direct_kernels();
    return kernels
        .few_channels[form_.channels_out >= 2 * kernels.lanes ? 1 : 0][form_.size_out(1) >= kernels.pixels ? 0 : 1];
  }

  DirectLoops loops_of(const float* image, float* out) const {
    const bool is_last = form_.image_is_channels_last;
    const int64_t pixel = is_last ? form_.channels_in : 1;
    return {.image = image,
            .weights = packed_,
            .bias = has_bias_ ? packed_ + form_.channels_out * form_.weights_of_output() : nullptr,
            .out = out,
            .height = form_.image[0],
            .width = form_.image[1],
            .channels_in = form_.channels_in,
            .image_distance = form_.channels_in * form_.pixels_in(),
            .row_distance = form_.image[1] * pixel,
            .pixel_distance = pixel,
            .channel_distance = is_last ? 1 : form_.pixels_in(),
            .out_height = form_.size_out(0),
            .out_width = form_.size_out(1),
            .channels_out = form_.channels_out,
            .kernel_height = form_.kernel[0],
            .kernel_width = form_.kernel[1],
            .stride_height = form_.stride[0],
            .stride_width = form_.stride[1],
            .padding_height = form_.padding[0],
            .padding_width = form_.padding[1],
            .least = bounds_.least,
            .most = bounds_.most};
  }

  // Writes the weights of one output channel after the other's, position by position, and then the bias.
  bool make(PackedWeights& packed, WeightTensors tensors) override {
    const int64_t area = form_.kernel[0] * form_.kernel[1];
    const int64_t channels = form_.channels_in / form_.groups;
    const int64_t outputs = form_.channels_out;
    const WeightElements elements = elements_of(tensors);
    packed_ = packed.fill_once(tensors, outputs * (channels * area + 1), [&](float* to) {
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t k = 0; k < area; ++k) {
          const int64_t first = form_.weight_is_channels_last ? k * channels + c : c * area + k;
          for (int64_t o = 0; o < outputs; ++o) {
            *to++ = elements.weight[o * channels * area + first];
          }
        }
      }
      if (elements.bias != nullptr) {
        std::copy_n(elements.bias, outputs, to);
      } else {
        std::fill_n(to, outputs, 0.0F);
      }
    });
    return !form_.has_padding() || packed.are_finite();  // zeros around an image are multiplied
  }
  void drop() override { packed_ = nullptr; }

  const Bounds bounds_;
  ConvolutionForm form_;
  DirectRows rows_ = nullptr;
  const float* packed_ = nullptr;
  bool has_bias_ = false;
};

}  // namespace

bool suits_direct_loops(const ConvolutionForm& form) {
  constexpr int64_t kFewChannels = 4;
  constexpr int64_t kMaxWeights = 200;  // of an output channel: those of some channels stay in the first level of the cache
  const DirectKernels* kernels = direct_kernels();
  if (kernels == nullptr || !form.result_is_channels_last || form.channels_out < kernels->lanes ||
      form.dilation != std::array<int64_t, 2>{1, 1}) {
    return false;
  }
  if (form.is_depthwise()) {
    const int64_t width = form.kernel[1];
    return form.image_is_channels_last && (width == 3 || width == 5 || width == 7) && form.stride[1] <= 2;
  }
  return form.groups == 1 && form.channels_in <= kFewChannels && form.weights_of_output() <= kMaxWeights;
}

std::unique_ptr<PackedConvolution> make_direct_convolution(Bounds bounds) {
  return std::make_unique<DirectConvolution>(bounds);
}

}  // namespace sconce
