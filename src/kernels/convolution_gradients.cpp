// Gradients of convolutions.
#include "kernels/convolution_form.h"
#include "kernels/kernel_table.h"
#include "kernels/packed/tiled_gradients.h"

#include <algorithm>

namespace sconce {
namespace {

// Where convolution_backward has its arguments.
struct Place {
  static constexpr size_t kGradient = 0;
  static constexpr size_t kImage = 1;
  static constexpr size_t kWeight = 2;
  static constexpr size_t kStride = 4;
  static constexpr size_t kPadding = 5;
  static constexpr size_t kDilation = 6;
  static constexpr size_t kTransposed = 7;
  static constexpr size_t kOutputPadding = 8;
  static constexpr size_t kGroups = 9;
  static constexpr size_t kAsked = 10;
};

// Returns whether the numbers are those of a convolution that is not transposed.
bool is_no_padding(const c10::IValue& value, bool is_row) {
  if (!value.isIntList()) {
    return false;
  }
  const auto numbers = value.toIntVector();
  return (numbers.size() == 1 || (numbers.size() == 2 && !is_row)) &&
         std::all_of(numbers.begin(), numbers.end(), [](int64_t number) { return number == 0; });
}

// Computes the gradients of depthwise convolutions by loops, and of others by tiles.
class ConvolutionGradientsKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& gradient = arguments.tensor(Place::kGradient);
    const at::Tensor& image = arguments.tensor(Place::kImage);
    const at::Tensor& weight = arguments.tensor(Place::kWeight);
    auto form = arguments.is_exact()
                    ? std::nullopt
                    : form_of_convolution(image, weight,
                                          {arguments.value(Place::kStride), arguments.value(Place::kPadding),
                                           arguments.value(Place::kDilation), arguments.value(Place::kGroups).toInt(),
                                           arguments.value(Place::kTransposed).toBool()});
    const bool is_row = image.dim() == 3;
    const c10::List<bool> asked = arguments.value(Place::kAsked).toBoolList();
    if (!form || !(suits_blocks(*form) || suits_tiled_gradients(*form)) ||
        !is_no_padding(arguments.value(Place::kOutputPadding), is_row) || !is_batch(gradient) ||
        gradient.sizes() != c10::IntArrayRef(sizes_of_result(*form, is_row))) {
      return false;
    }
    form_ = *form;
    is_depthwise_ = suits_blocks(*form);
    form_.result_is_channels_last = !is_row && gradient.is_contiguous(at::MemoryFormat::ChannelsLast);
    is_last_ = lies_channels_last(image, weight);
    for (size_t i = 0; i < is_asked_.size(); ++i) {
      is_asked_[i] = asked.get(i);
      const std::vector<int64_t> sizes = !is_asked_[i] ? std::vector<int64_t>{0}
                                         : i == 0      ? image.sizes().vec()
                                         : i == 1      ? weight.sizes().vec()
                                                       : std::vector<int64_t>{form_.channels_out};
      const bool is_last = is_last_ && sizes.size() == 4;
      results[i].place(sizes, is_last ? c10::get_channels_last_strides_2d(sizes) : std::vector<int64_t>(), at::kFloat);
    }
    return true;
  }
  bool may_have_to_wait() const override { return true; }
  bool can_run(const KernelArguments& arguments) const override {
    const auto* const weight = static_cast<const float*>(arguments.data(Place::kWeight));
    if (is_depthwise_) {
      return ignores_padding(form_, weight);
    }
    // Tiles multiply zeros: the gradient of an image is a convolution of the result's gradient, with zeros around it.
    const auto* const gradient = static_cast<const float*>(arguments.data(Place::kGradient));
    return (!is_asked_[0] || are_finite(weight, form_.channels_out * form_.weights_of_output())) &&
           (!is_asked_[1] || !form_.has_padding() || are_finite(gradient, form_.elements_out()));
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    const auto operand = [&](size_t position) { return static_cast<const float*>(arguments.data(position)); };
    const auto result = [&](size_t i) { return is_asked_[i] ? static_cast<float*>(results[i].data) : nullptr; };
    const ConvolutionGradients gradients = {.gradient = operand(Place::kGradient),
                                            .image = operand(Place::kImage),
                                            .weight = operand(Place::kWeight),
                                            .of_image = result(0),
                                            .of_image_is_channels_last = is_last_,
                                            .of_weight = result(1),
                                            .of_weight_is_channels_last = is_last_,
                                            .of_bias = result(2)};
    if (is_depthwise_) {
      compute_gradients(form_, gradients);
    } else {
      compute_gradients_by_tiles(form_, gradients);
    }
  }

 private:
  ConvolutionForm form_;
  bool is_depthwise_ = false;
  bool is_last_ = false;  // the gradients of image and weight are channels-last
  std::array<bool, 3> is_asked_ = {};
};

}  // namespace

void add_convolution_gradient_kernels(KernelTable& table) {
  table[{"aten::convolution_backward", ""}] = {.make = make_kernel<ConvolutionGradientsKernel>,
                                               .asked_results = Place::kAsked};
}

}  // namespace sconce
