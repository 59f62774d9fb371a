// Convolutions of channels-last images, by XNNPACK.
#include "plan/prepared/packed/packed_convolution.h"
#include "plan/prepared/kernel.h"

#include <ATen/Context.h>

#include <algorithm>

namespace sconce {
namespace {

// conv2d(input, weight, bias?, stride, padding, dilation, groups)
class ConvolutionKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& input = arguments.tensor(0);
    const at::Tensor& weight = arguments.tensor(1);
    has_bias_ = arguments.is_tensor(2);
    constexpr auto kLast = at::MemoryFormat::ChannelsLast;
    const auto is_image = [](const at::Tensor& tensor) {
      return tensor.scalar_type() == at::kFloat && tensor.dim() == 4 && tensor.numel() > 0;
    };
    if (arguments.is_exact() || !is_image(input) || !is_image(weight) || !input.is_contiguous(kLast) ||
        !(weight.is_contiguous() || weight.is_contiguous(kLast)) || !at::globalContext().userEnabledMkldnn() ||
        (has_bias_ && !is_bias(arguments.tensor(2), weight.size(0)))) {
      return false;
    }
    ConvolutionForm form{.images = input.size(0),
                         .image = {input.size(2), input.size(3)},
                         .channels_in = input.size(1),
                         .channels_out = weight.size(0),
                         .groups = arguments.value(6).toInt(),
                         .kernel = {weight.size(2), weight.size(3)}};
    if (!read_pair(arguments.value(3), 1, form.stride) || !read_pair(arguments.value(4), 0, form.padding) ||
        !read_pair(arguments.value(5), 1, form.dilation) || form.groups < 1 || form.channels_in % form.groups != 0 ||
        form.channels_out % form.groups != 0 || weight.size(1) != form.channels_in / form.groups || form.size_out(0) < 1 ||
        form.size_out(1) < 1 || !is_faster_packed(form)) {
      return false;
    }
    // LibTorch's result lies as its operands do.
    if (input.suggest_memory_format() != kLast && weight.suggest_memory_format() != kLast) {
      return false;
    }
    packed_.set_form(form);
    const std::vector<int64_t> sizes = {form.images, form.channels_out, form.size_out(0), form.size_out(1)};
    results[0].place(sizes, c10::get_channels_last_strides_2d(sizes), at::kFloat);
    return true;
  }
  // Weights that are packed stay so.
  bool prepare_again(const KernelArguments& arguments, KernelResults results) override {
    return prepare(arguments, results);
  }
  bool may_have_to_wait() const override { return true; }
  bool can_run(const KernelArguments& arguments) const override {
    return packed_.is_ready(arguments.impl(1), has_bias_, has_bias_ ? arguments.impl(2) : nullptr,
                            static_cast<const float*>(arguments.data(0)));
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    packed_.run(static_cast<const float*>(arguments.data(0)), static_cast<float*>(results[0].data));
  }

 private:
  static bool is_bias(const at::Tensor& tensor, int64_t channels) {
    return tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.sizes() == c10::IntArrayRef{channels};
  }

  // Reads the numbers of two dimensions: one number stands for both. Returns false for a number that LibTorch rejects.
  static bool read_pair(const c10::IValue& value, int64_t least, std::array<int64_t, 2>& pair) {
    if (!value.isIntList()) {
      return false;
    }
    const auto numbers = value.toIntVector();
    if (numbers.size() != 1 && numbers.size() != 2) {
      return false;
    }
    pair = {numbers.front(), numbers.back()};
    return std::all_of(pair.begin(), pair.end(), [least](int64_t number) { return number >= least; });
  }

  mutable PackedConvolution packed_;
  bool has_bias_ = false;
};

}  // namespace

void add_convolution_kernels(KernelTable& table) { table[{"aten::conv2d", ""}] = {make_kernel<ConvolutionKernel>}; }

}  // namespace sconce
