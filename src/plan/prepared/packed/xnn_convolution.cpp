// Convolutions by XNNPACK. It computes channels-last: an image or result in the other order is transposed on the way.
#include "plan/prepared/packed/packed_convolution.h"
#include "plan/prepared/packed/transpose.h"
#include "plan/prepared/packed/xnn_threads.h"

#include <c10/core/CPUAllocator.h>

#include <vector>

namespace sconce {
namespace {

class XnnConvolution final : public PackedConvolution, private XnnPackedOperator {
 public:
  explicit XnnConvolution(Bounds bounds) : bounds_(bounds) {}
  void set_form(const ConvolutionForm& form) override;
  bool is_ready(const KernelArguments& arguments, const ConvolutionOperands& operands) override;
  void run(const float* image, float* out) override;

 private:
  xnn_status create(const WeightElements& elements, xnn_weights_cache_t cache, xnn_operator_t* created) override;

  const Bounds bounds_;
  ConvolutionForm form_;
  c10::DataPtr workspace_;
  c10::DataPtr image_;   // transposed
  c10::DataPtr result_;  // to be transposed
  int threads_ = 1;
};

void XnnConvolution::set_form(const ConvolutionForm& form) {
  form_ = form;
  threads_ = xnn_threads_for(form.multiplications());
  XnnPackedOperator::set_form({1, form.channels_in, form.channels_out, form.groups, form.kernel[0], form.kernel[1],
                               form.stride[0], form.stride[1], form.padding[0], form.padding[1], form.dilation[0],
                               form.dilation[1], form.weight_is_channels_last ? 1 : 0});
}

bool XnnConvolution::is_ready(const KernelArguments& arguments, const ConvolutionOperands& operands) {
  const auto* image = static_cast<const float*>(arguments.data(operands.image));
  const bool is_readable = !form_.image_is_channels_last || may_read_past(image + form_.elements_in());
  if (!is_readable || !find(arguments, operands.weight, operands.bias)) {
    return false;
  }
  if (!take_sizes()) {
    size_t bytes = 0;
    size_t alignment = 0;
    size_t height = 0;
    size_t width = 0;
    const xnn_status status = xnn_reshape_convolution2d_nhwc_f32(
        xnn(), static_cast<size_t>(form_.images), static_cast<size_t>(form_.image[0]), static_cast<size_t>(form_.image[1]),
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

void XnnConvolution::run(const float* image, float* out) {
  for (int64_t i = 0; i < form_.images && !form_.image_is_channels_last; ++i) {
    const int64_t first = i * form_.channels_in * form_.pixels_in();
    transpose(image + first, form_.channels_in, form_.pixels_in(), static_cast<float*>(image_.get()) + first);
  }
  const auto* in = form_.image_is_channels_last ? image : static_cast<const float*>(image_.get());
  auto* const result = form_.result_is_channels_last ? out : static_cast<float*>(result_.get());
  const XnnThreads threads(threads_);
  const bool has_run = xnn_setup_convolution2d_nhwc_f32(xnn(), workspace_.get(), in, result) == xnn_status_success &&
                       xnn_run_operator(xnn(), threads.get()) == xnn_status_success;
  TORCH_INTERNAL_ASSERT(has_run, "XNNPACK refuses to run a convolution");
  for (int64_t i = 0; i < form_.images && !form_.result_is_channels_last; ++i) {
    const int64_t first = i * form_.channels_out * form_.pixels_out();
    transpose(result + first, form_.pixels_out(), form_.channels_out, out + first);
  }
}

xnn_status XnnConvolution::create(const WeightElements& elements, xnn_weights_cache_t cache, xnn_operator_t* created) {
  const float* weight = elements.weight;
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
  return xnn_create_convolution2d_nhwc_f32(
      of(form_.padding, 0), of(form_.padding, 1), of(form_.padding, 0), of(form_.padding, 1), of(form_.kernel, 0),
      of(form_.kernel, 1), of(form_.stride, 0), of(form_.stride, 1), of(form_.dilation, 0), of(form_.dilation, 1),
      static_cast<uint32_t>(form_.groups), channels, outputs / static_cast<size_t>(form_.groups),
      static_cast<size_t>(form_.channels_in), outputs, weight, elements.bias, bounds_.least, bounds_.most, XNN_FLAG_YIELD_WORKERS,
      nullptr, cache, created);
}

}  // namespace

std::unique_ptr<PackedConvolution> make_xnn_convolution(Bounds bounds) { return std::make_unique<XnnConvolution>(bounds); }

}  // namespace sconce
