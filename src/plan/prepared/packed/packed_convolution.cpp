#include "plan/prepared/packed/packed_convolution.h"

#include "plan/prepared/packed/transpose.h"
#include "plan/prepared/packed/xnn_threads.h"

#include <c10/core/CPUAllocator.h>

#include <limits>

namespace sconce {

int64_t ConvolutionForm::size_out(size_t dim) const {
  const int64_t padded = image[dim] + 2 * padding[dim];
  return (padded - dilation[dim] * (kernel[dim] - 1) - 1) / stride[dim] + 1;
}

bool is_faster_packed(const ConvolutionForm& form) {
  // LibTorch's call costs about 30 us in any case. Beyond that, its kernels do about twice as much in the same time where
  // the channels of a group do not fill the registers, or are computed one by one. At more than 25 elements XNNPACK has no
  // kernel for single channels.
  constexpr int64_t kSmall = 1'200'000;
  constexpr int64_t kFewChannels = 24;
  // The time of LibTorch's call is worth so many elements transposed, and that of so many multiplications one more.
  constexpr int64_t kTransposed = 70'000;
  constexpr int64_t kMultiplicationsOfOne = 110;
  const int64_t transposed =
      (form.image_is_channels_last ? 0 : form.elements_in()) + (form.result_is_channels_last ? 0 : form.elements_out());
  if (transposed > kTransposed + form.multiplications() / kMultiplicationsOfOne) {
    return false;
  }
  if (form.is_depthwise()) {
    return form.kernel[0] * form.kernel[1] <= 25 && form.multiplications() <= kSmall;
  }
  return form.channels_out / form.groups >= kFewChannels || form.multiplications() <= kSmall;
}

void PackedConvolution::set_form(const ConvolutionForm& form) {
  form_ = form;
  threads_ = xnn_threads_for(form.multiplications());
  PackedOperator::set_form({1, form.channels_in, form.channels_out, form.groups, form.kernel[0], form.kernel[1],
                            form.stride[0], form.stride[1], form.padding[0], form.padding[1], form.dilation[0],
                            form.dilation[1], form.weight_is_channels_last ? 1 : 0});
}

bool PackedConvolution::is_ready(const KernelArguments& arguments) {
  const auto* image = static_cast<const float*>(arguments.data(0));
  const bool is_readable = !form_.image_is_channels_last || may_read_past(image + form_.elements_in());
  op_ = is_readable ? find(arguments, 1, 2) : nullptr;
  if (op_ == nullptr) {
    return false;
  }
  if (!take_sizes()) {
    size_t bytes = 0;
    size_t alignment = 0;
    size_t height = 0;
    size_t width = 0;
    const xnn_status status = xnn_reshape_convolution2d_nhwc_f32(
        op_, static_cast<size_t>(form_.images), static_cast<size_t>(form_.image[0]), static_cast<size_t>(form_.image[1]),
        &bytes, &alignment, &height, &width, xnn_pool_of(threads_));
    TORCH_INTERNAL_ASSERT(status == xnn_status_success && static_cast<int64_t>(height) == form_.size_out(0) &&
                              static_cast<int64_t>(width) == form_.size_out(1),
                          "XNNPACK refuses sizes of a convolution");
    workspace_ = c10::GetDefaultCPUAllocator()->allocate(bytes);
    const auto room_for = [](bool is_direct, int64_t elements) {
      const size_t needed = is_direct ? 0 : static_cast<size_t>(elements) * sizeof(float) + XNN_EXTRA_BYTES;
      return c10::GetDefaultCPUAllocator()->allocate(needed);
    };
    image_ = room_for(form_.image_is_channels_last, form_.elements_in());
    result_ = room_for(form_.result_is_channels_last, form_.elements_out());
  }
  return true;
}

void PackedConvolution::run(const float* image, float* out) {
  const int64_t pixels_in = form_.image[0] * form_.image[1];
  const int64_t pixels_out = form_.size_out(0) * form_.size_out(1);
  for (int64_t i = 0; i < form_.images && !form_.image_is_channels_last; ++i) {
    const int64_t first = i * form_.channels_in * pixels_in;
    transpose(image + first, form_.channels_in, pixels_in, static_cast<float*>(image_.get()) + first);
  }
  const auto* in = form_.image_is_channels_last ? image : static_cast<const float*>(image_.get());
  auto* const result = form_.result_is_channels_last ? out : static_cast<float*>(result_.get());
  const XnnThreads threads(threads_);
  const bool has_run = xnn_setup_convolution2d_nhwc_f32(op_, workspace_.get(), in, result) == xnn_status_success &&
                       xnn_run_operator(op_, threads.get()) == xnn_status_success;
  TORCH_INTERNAL_ASSERT(has_run, "XNNPACK refuses to run a convolution");
  for (int64_t i = 0; i < form_.images && !form_.result_is_channels_last; ++i) {
    const int64_t first = i * form_.channels_out * pixels_out;
    transpose(result + first, pixels_out, form_.channels_out, out + first);
  }
}

xnn_status PackedConvolution::create(const float* weight, const float* bias, xnn_weights_cache_t cache,
                                     xnn_operator_t* created) {
  const auto channels = static_cast<size_t>(form_.channels_in / form_.groups);
  const auto outputs = static_cast<size_t>(form_.channels_out);
  const auto area = static_cast<size_t>(form_.kernel[0] * form_.kernel[1]);
  std::vector<float> channels_last;
  if (!form_.weight_is_channels_last) {
    channels_last.resize(outputs * area * channels);
    for (size_t i = 0; i < outputs * channels; ++i) {
      for (size_t k = 0; k < area; ++k) {
        channels_last[(i / channels * area + k) * channels + i % channels] = weight[i * area + k];
      }
    }
    weight = channels_last.data();
  }
  const auto of = [](const std::array<int64_t, 2>& sizes, size_t dim) { return static_cast<uint32_t>(sizes[dim]); };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return xnn_create_convolution2d_nhwc_f32(
      of(form_.padding, 0), of(form_.padding, 1), of(form_.padding, 0), of(form_.padding, 1), of(form_.kernel, 0),
      of(form_.kernel, 1), of(form_.stride, 0), of(form_.stride, 1), of(form_.dilation, 0), of(form_.dilation, 1),
      static_cast<uint32_t>(form_.groups), channels, outputs / static_cast<size_t>(form_.groups),
      static_cast<size_t>(form_.channels_in), outputs, weight, bias, -kInfinity, kInfinity, /*flags=*/0, nullptr, cache,
      created);
}

}  // namespace sconce
