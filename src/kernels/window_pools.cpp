// Pools that average all pixels of a channel; pools over windows of contiguous images, block of channels by block, maxima of
// channels-last ones, and the gradients of averages.
//
// LibTorch computes them pixel by pixel: 4 to 14 ns an element that is read.
#include "kernels/kernel_table.h"
#include "kernels/loops/direct_loops.h"
#include "kernels/loops/forks.h"
#include "kernels/packed/block_convolution.h"
#include "kernels/packed/channel_blocks.h"
#include "kernels/packed/scratch.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace sconce {
namespace {

// adaptive_avg_pool2d(input, output_size), to one pixel
class AverageOfPixels final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& input = arguments.tensor(0);
    const DirectKernels* kernels = direct_kernels();
    if (kernels == nullptr || arguments.is_exact() || input.dim() != 4 || input.scalar_type() != at::kFloat ||
        input.numel() == 0 || !arguments.value(1).isIntList() ||
        arguments.value(1).toIntVector() != std::vector<int64_t>{1, 1}) {
      return false;
    }
    is_last_ = input.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
    images_ = input.size(0);
    channels_ = input.size(1);
    pixels_ = input.size(2) * input.size(3);
    if (!input.is_contiguous(input.suggest_memory_format()) || (is_last_ && channels_ < kernels->lanes)) {
      return false;
    }
    const std::vector<int64_t> sizes = {images_, channels_, 1, 1};
    results[0].place(sizes, is_last_ ? c10::get_channels_last_strides_2d(sizes) : std::vector<int64_t>(), at::kFloat);
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    constexpr int64_t kChannels = 64;
    const auto* input = static_cast<const float*>(arguments.data(0));
    auto* out = static_cast<float*>(results[0].data);
    const int64_t blocks = std::max<int64_t>(channels_ / kChannels, 1);  // the last one has all that are left
    fork_by_elements(images_ * blocks, pixels_ * kChannels, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / blocks;
        const int64_t first = i % blocks * kChannels;
        const int64_t last = i % blocks == blocks - 1 ? channels_ : first + kChannels;
        average(input + image * channels_ * pixels_, first, last, out + image * channels_);
      }
    });
  }

 private:
  void average(const float* image, int64_t first, int64_t last, float* out) const {
    const DirectKernels& kernels = *direct_kernels();
    if (is_last_) {
      kernels.mean_of_columns(image + first, pixels_, last - first, channels_, out + first);
    } else {
      kernels.mean_of_rows(image + first * pixels_, last - first, pixels_, out + first);
    }
  }

  int64_t images_ = 0;
  int64_t channels_ = 0;
  int64_t pixels_ = 0;
  bool is_last_ = false;
};

thread_local Scratch pooled_block;

// Windows over images, and the sizes of what they give.
struct WindowForm {
  int64_t images = 0;
  int64_t channels = 0;
  std::array<int64_t, 2> image = {};
  std::array<int64_t, 2> window = {};
  std::array<int64_t, 2> stride = {};
  std::array<int64_t, 2> padding = {};
  std::array<int64_t, 2> out = {};
  bool is_channels_last = false;

  int64_t pixels_in() const { return image[0] * image[1]; }
  int64_t pixels_out() const { return out[0] * out[1]; }
  std::vector<int64_t> sizes() const { return {images, channels, out[0], out[1]}; }
};

bool is_image_batch(const at::Tensor& tensor) {
  return tensor.dim() == 4 && tensor.scalar_type() == at::kFloat && tensor.numel() > 0 && tensor.is_contiguous() &&
         tensor.suggest_memory_format() == at::MemoryFormat::Contiguous;
}

bool is_channels_last_batch(const at::Tensor& tensor) {
  return tensor.dim() == 4 && tensor.scalar_type() == at::kFloat && tensor.numel() > 0 &&
         tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast &&
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
}

// Returns nothing for numbers that LibTorch rejects.
std::optional<std::array<int64_t, 2>> pair_of(const c10::IValue& value, int64_t least) {
  if (!value.isIntList()) {
    return std::nullopt;
  }
  const auto given = value.toIntVector();
  if ((given.size() != 1 && given.size() != 2) || given.front() < least || given.back() < least) {
    return std::nullopt;
  }
  return std::array<int64_t, 2>{given.front(), given.back()};
}

// The arguments come one after the other: window, stride (empty: the window), padding. Returns nothing for what LibTorch's
// operator computes or rejects.
std::optional<WindowForm> form_of_windows(const at::Tensor& image, const KernelArguments& arguments, size_t first,
                                          bool rounds_up, bool accepts_channels_last = false) {
  const bool is_last = accepts_channels_last && is_channels_last_batch(image);
  const auto window = pair_of(arguments.value(first), 1);
  const c10::IValue& strides = arguments.value(first + 1);
  const auto stride = strides.isIntList() && strides.toIntVector().empty() ? window : pair_of(strides, 1);
  const auto padding = pair_of(arguments.value(first + 2), 0);
  if (arguments.is_exact() || direct_kernels() == nullptr || !(is_last || is_image_batch(image)) || !window || !stride ||
      !padding || (is_last ? image.size(1) < direct_kernels()->lanes : image.size(2) * image.size(3) > kMaxPixelsOfBlock)) {
    return std::nullopt;
  }
  WindowForm form{.images = image.size(0),
                  .channels = image.size(1),
                  .image = {image.size(2), image.size(3)},
                  .window = *window,
                  .stride = *stride,
                  .padding = *padding,
                  .is_channels_last = is_last};
  for (size_t dim = 0; dim < 2; ++dim) {
    const int64_t step = form.stride[dim];
    const int64_t room = form.image[dim] + 2 * form.padding[dim] - form.window[dim];
    if (room < 0 || 2 * form.padding[dim] > form.window[dim]) {
      return std::nullopt;
    }
    form.out[dim] = (room + (rounds_up ? step - 1 : 0)) / step + 1;
    // The last window begins in the image, or before it.
    if (rounds_up && (form.out[dim] - 1) * step >= form.image[dim] + form.padding[dim]) {
      --form.out[dim];
    }
  }
  if (!is_last && form.pixels_out() > kMaxPixelsOfBlock) {
    return std::nullopt;
  }
  return form;
}

// max_pool2d and max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
template <bool kFindsIndices>
class MaximumOfWindows final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const auto form = form_of_windows(arguments.tensor(0), arguments, 1, arguments.value(5).toBool(),
                                      /*accepts_channels_last=*/!kFindsIndices);
    const auto dilation = pair_of(arguments.value(4), 1);
    if (!form || dilation != std::array<int64_t, 2>{1, 1}) {
      return false;
    }
    form_ = *form;
    results[0].place(form_.sizes(),
                     form_.is_channels_last ? c10::get_channels_last_strides_2d(form_.sizes()) : std::vector<int64_t>(),
                     at::kFloat);
    if constexpr (kFindsIndices) {
      results[1].place(form_.sizes(), {}, at::kLong);
    }
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    const auto* images = static_cast<const float*>(arguments.data(0));
    auto* out = static_cast<float*>(results[0].data);
    if (form_.is_channels_last) {
      run_channels_last(images, out);
      return;
    }
    const ChannelBlocks blocks(form_.channels);
    const int64_t of_item = form_.pixels_out() * form_.window[0] * form_.window[1] * blocks.lanes();
    fork_by_multiplications(form_.images * blocks.count(), of_item, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t* indices = nullptr;
        if constexpr (kFindsIndices) {
          indices = static_cast<int64_t*>(results[1].data);
        }
        run_block(blocks, i % form_.images, i / form_.images, images, out, indices);
      }
    });
  }

 private:
  void run_channels_last(const float* images, float* out) const {
    const int64_t of_row = form_.out[1] * form_.window[0] * form_.window[1] * form_.channels;
    fork_by_multiplications(form_.images * form_.out[0], of_row, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* image = images + row / form_.out[0] * form_.channels * form_.pixels_in();
        run_row(image, row % form_.out[0], out + row * form_.out[1] * form_.channels);
      }
    });
  }

  void run_row(const float* image, int64_t row, float* out) const {
    PixelWindow window{.row_distance = form_.image[1] * form_.channels, .channels = form_.channels};
    const int64_t top = row * form_.stride[0] - form_.padding[0];
    const int64_t first_row = std::max<int64_t>(top, 0);
    window.rows = std::min(top + form_.window[0], form_.image[0]) - first_row;
    for (int64_t x = 0; x < form_.out[1]; ++x, out += form_.channels) {
      const int64_t left = x * form_.stride[1] - form_.padding[1];
      const int64_t first = std::max<int64_t>(left, 0);
      window.columns = std::min(left + form_.window[1], form_.image[1]) - first;
      direct_kernels()->maximum_of_pixels(window, image + (first_row * form_.image[1] + first) * form_.channels, out);
    }
  }

  void run_block(const ChannelBlocks& blocks, int64_t image, int64_t block, const float* images, float* out,
                 int64_t* indices) const {
    const int64_t lanes = blocks.lanes();
    const int64_t pixels = form_.pixels_out();
    float* in = pooled_block.of((form_.pixels_in() + 3 * pixels) * lanes);
    float* most = in + form_.pixels_in() * lanes;
    float* found = most + pixels * lanes;
    float* planes = found + pixels * lanes;
    const AxisTaps rows = AxisTaps::of_window(form_.window[0], form_.padding[0], 1);
    const AxisTaps columns = AxisTaps::of_window(form_.window[1], form_.padding[1], 1);
    blocks.read(images, image, block, form_.pixels_in(), /*is_channels_last=*/false, in);
    direct_kernels()->block_maximum({.rows = rows.axis(form_.image[0], form_.out[0], form_.stride[0]),
                                     .columns = columns.axis(form_.image[1], form_.out[1], form_.stride[1]),
                                     .in = in,
                                     .out = most,
                                     .indices = indices != nullptr ? reinterpret_cast<int32_t*>(found) : nullptr});
    blocks.write(most, image, block, pixels, /*is_channels_last=*/false, out);
    if (indices != nullptr) {
      const int64_t channels = blocks.channels_of(block);
      direct_kernels()->write_block(found, pixels, channels, planes);  // moves bits
      std::copy_n(reinterpret_cast<const int32_t*>(planes), channels * pixels,
                  indices + (image * form_.channels + blocks.first_channel(block)) * pixels);
    }
  }

  WindowForm form_;
};

// Averages of whole windows: a depthwise convolution with equal weights.
class AverageForm {
 public:
  // Returns false where windows reach beyond the image, or are divided by another number than their pixels.
  bool set(const at::Tensor& image, const KernelArguments& arguments, size_t first) {
    const auto form = form_of_windows(image, arguments, first, /*rounds_up=*/false);
    if (!form || form->padding != std::array<int64_t, 2>{0, 0} || arguments.value(first + 3).toBool() ||
        !arguments.value(first + 5).isNone()) {
      return false;
    }
    sizes_ = form->sizes();
    form_ = {.images = form->images,
             .image = form->image,
             .channels_in = form->channels,
             .channels_out = form->channels,
             .groups = form->channels,
             .kernel = form->window,
             .stride = form->stride,
             .dilation = {1, 1},
             .image_is_channels_last = false,
             .result_is_channels_last = false};
    const int64_t pixels = form->window[0] * form->window[1];
    weights_.assign(static_cast<size_t>(form->channels * pixels), 1 / static_cast<float>(pixels));
    return true;
  }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  const ConvolutionForm& form() const { return form_; }
  const float* weights() const { return weights_.data(); }

 private:
  std::vector<int64_t> sizes_;  // of the result
  ConvolutionForm form_;
  std::vector<float> weights_;
};

// avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
class AverageOfWindows final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (!average_.set(arguments.tensor(0), arguments, 1)) {
      return false;
    }
    results[0].place(average_.sizes(), {}, at::kFloat);
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    compute_convolution(average_.form(),
                        {.image = static_cast<const float*>(arguments.data(0)),
                         .weight = average_.weights(),
                         .out = static_cast<float*>(results[0].data)},
                        Bounds());
  }

 private:
  AverageForm average_;
};

// avg_pool2d_backward(grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
class GradientOfAverages final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& gradient = arguments.tensor(0);
    const at::Tensor& image = arguments.tensor(1);
    if (!average_.set(image, arguments, 2) || !is_image_batch(gradient) ||
        gradient.sizes() != c10::IntArrayRef(average_.sizes())) {
      return false;
    }
    results[0].place(image.sizes(), {}, at::kFloat);
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    compute_gradients(average_.form(), {.gradient = static_cast<const float*>(arguments.data(0)),
                                        .weight = average_.weights(),
                                        .of_image = static_cast<float*>(results[0].data)});
  }

 private:
  AverageForm average_;
};

}  // namespace

void add_pool_kernels(KernelTable& table) {
  table[{"aten::adaptive_avg_pool2d", ""}] = {make_kernel<AverageOfPixels>};
  table[{"aten::max_pool2d", ""}] = {.make = make_kernel<MaximumOfWindows<false>>};
  table[{"aten::max_pool2d_with_indices", ""}] = {.make = make_kernel<MaximumOfWindows<true>>};
  table[{"aten::avg_pool2d", ""}] = {.make = make_kernel<AverageOfWindows>};
  table[{"aten::avg_pool2d_backward", ""}] = {.make = make_kernel<GradientOfAverages>};
}

}  // namespace sconce
