// Convolutions of images and rows, with packed weights.
#include "plan/prepared/kernel.h"
#include "plan/prepared/kernels/float32_precision.h"
#include "plan/prepared/packed/packed_convolution.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace sconce {
namespace {

// Where an operator has its arguments.
struct Conv {
  static constexpr size_t kGroups = 6;
};
struct Convolution {
  static constexpr size_t kTransposed = 6;
  static constexpr size_t kGroups = 8;
};

// conv1d, conv2d, or convolution: (input, weight, bias?, stride, padding, dilation, …, groups, …)
template <class Arguments>
class ConvolutionKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& input = arguments.tensor(0);
    const at::Tensor& weight = arguments.tensor(1);
    if (!arguments.packs_weights() || !is_batch(input) || !is_batch(weight) || input.dim() != weight.dim() ||
        !at::globalContext().userEnabledMkldnn() || !computes_in_float32(at::Float32Op::CONV) ||
        (arguments.is_tensor(2) && !is_bias(arguments.tensor(2), weight.size(0)))) {
      return false;
    }
    if constexpr (std::is_same_v<Arguments, Convolution>) {
      if (arguments.value(Arguments::kTransposed).toBool()) {
        return false;
      }
    }
    // A row of pixels is an image of one row.
    const bool is_row = input.dim() == 3;
    ConvolutionForm form{.images = input.size(0),
                         .image = {is_row ? 1 : input.size(2), input.size(-1)},
                         .channels_in = input.size(1),
                         .channels_out = weight.size(0),
                         .groups = arguments.value(Arguments::kGroups).toInt(),
                         .kernel = {is_row ? 1 : weight.size(2), weight.size(-1)}};
    if (!read_numbers(arguments.value(3), is_row, 1, form.stride) ||
        !read_numbers(arguments.value(4), is_row, 0, form.padding) ||
        !read_numbers(arguments.value(5), is_row, 1, form.dilation) || form.groups < 1 ||
        form.channels_in % form.groups != 0 || form.channels_out % form.groups != 0 ||
        weight.size(1) != form.channels_in / form.groups || form.size_out(0) < 1 || form.size_out(1) < 1) {
      return false;
    }
    // LibTorch's result lies as its operands do.
    const bool is_last = !is_row && (input.suggest_memory_format() == kLast || weight.suggest_memory_format() == kLast);
    form.image_is_channels_last = !is_row && input.is_contiguous(kLast);
    form.weight_is_channels_last = !is_row && weight.is_contiguous(kLast);
    form.result_is_channels_last = is_last || form.channels_out == 1 || form.pixels_out() == 1;
    const ConvolutionKernels kernels = fastest_kernels(form);
    if (packed_ == nullptr || kernels != kernels_) {
      packed_ = make_packed_convolution(kernels, {});
      kernels_ = kernels;
    }
    if (packed_ == nullptr) {
      return false;
    }
    packed_->set_form(form);
    std::vector<int64_t> sizes = {form.images, form.channels_out, form.size_out(0), form.size_out(1)};
    if (is_row) {
      sizes.erase(sizes.begin() + 2);
    }
    results[0].place(sizes, is_last ? c10::get_channels_last_strides_2d(sizes) : std::vector<int64_t>(), at::kFloat);
    return true;
  }
  // Weights that are packed stay so.
  bool prepare_again(const KernelArguments& arguments, KernelResults results) override {
    return prepare(arguments, results);
  }
  bool may_have_to_wait() const override { return true; }
  bool can_run(const KernelArguments& arguments) const override { return packed_->is_ready(arguments, {}); }
  void run(const KernelArguments& arguments, KernelResults results) override {
    packed_->run(static_cast<const float*>(arguments.data(0)), static_cast<float*>(results[0].data));
  }

 private:
  static constexpr auto kLast = at::MemoryFormat::ChannelsLast;

  // Returns whether the tensor is a dense one of images, or rows of pixels, with channels.
  static bool is_batch(const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.numel() > 0 &&
           (tensor.dim() == 3 ? tensor.is_contiguous() && !is_channels_last_row(tensor)
                              : tensor.dim() == 4 && (tensor.is_contiguous() || tensor.is_contiguous(kLast)));
  }

  // LibTorch inserts a dimension before the last one, and then asks how the image lies.
  static bool is_channels_last_row(const at::Tensor& rows) {
    return c10::is_channels_last_strides_2d(
        c10::IntArrayRef{rows.size(0), rows.size(1), 1, rows.size(2)},
        c10::IntArrayRef{rows.stride(0), rows.stride(1), rows.size(2) * rows.stride(2), rows.stride(2)});
  }

  static bool is_bias(const at::Tensor& tensor, int64_t channels) {
    return tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.sizes() == c10::IntArrayRef{channels};
  }

  // Reads the numbers of two dimensions, or of the columns alone; one number stands for both. Returns false for numbers that
  // LibTorch rejects.
  static bool read_numbers(const c10::IValue& value, bool is_row, int64_t least, std::array<int64_t, 2>& numbers) {
    if (!value.isIntList()) {
      return false;
    }
    const auto given = value.toIntVector();
    if (given.size() != 1 && (is_row || given.size() != 2)) {
      return false;
    }
    numbers = {is_row ? least : given.front(), given.back()};  // rows: stride 1, padding 0, dilation 1
    return std::all_of(given.begin(), given.end(), [least](int64_t number) { return number >= least; });
  }

  ConvolutionKernels kernels_ = ConvolutionKernels::kLibTorch;
  std::unique_ptr<PackedConvolution> packed_;
};

}  // namespace

void add_convolution_kernels(KernelTable& table) {
  table[{"aten::conv1d", ""}] = {make_kernel<ConvolutionKernel<Conv>>};
  table[{"aten::conv2d", ""}] = {make_kernel<ConvolutionKernel<Conv>>};
  table[{"aten::convolution", ""}] = {make_kernel<ConvolutionKernel<Convolution>>};
  table[{"aten::_convolution", ""}] = {make_kernel<ConvolutionKernel<Convolution>>};
  table[{"aten::_convolution", "deprecated"}] = {make_kernel<ConvolutionKernel<Convolution>>};
}

}  // namespace sconce
