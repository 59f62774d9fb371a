// Batch norms that train, of contiguous images, plane by plane, and their gradients.
//
// Sums are of float32, in parts, which are added in float64. LibTorch adds each element in float64, four to ten times as
// slowly.
#include "kernels/kernel_table.h"
#include "kernels/loops/direct_loops.h"
#include "kernels/loops/forks.h"
#include "kernels/operand_memory.h"
#include "kernels/packed/scratch.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sconce {
namespace {

thread_local Scratch scratch_of_channel;

// The pixels of a channel, or room for them.
struct ChannelPixels {
  float* first;
  int64_t planes;
  int64_t distance;  // from one plane to the next
  int64_t pixels;    // of a plane
};

// The channels of images.
struct Channels {
  int64_t images = 0;
  int64_t count = 0;
  int64_t pixels = 0;

  int64_t pixels_of_channel() const { return images * pixels; }
  // Loops over planes of few pixels take longer than to bring these together.
  bool are_small() const {
    constexpr int64_t kFew = 128;
    return images > 1 && pixels < kFew;
  }
  // `copy`: one of those that a loop needs at a time.
  ChannelPixels room(float* data, int64_t channel, int64_t copy) const {
    constexpr int64_t kCopies = 3;
    if (are_small()) {
      return {scratch_of_channel.of(kCopies * pixels_of_channel()) + copy * pixels_of_channel(), 1, 0, pixels_of_channel()};
    }
    return {data + channel * pixels, images, count * pixels, pixels};
  }
  ChannelPixels read(const float* data, int64_t channel, int64_t copy) const {
    const ChannelPixels to = room(const_cast<float*>(data), channel, copy);
    for (int64_t image = 0; are_small() && image < images; ++image) {
      std::copy_n(data + (image * count + channel) * pixels, pixels, to.first + image * pixels);
    }
    return to;
  }
  void write(const ChannelPixels& from, int64_t channel, float* data) const {
    for (int64_t image = 0; are_small() && image < images; ++image) {
      std::copy_n(from.first + image * pixels, pixels, data + (image * count + channel) * pixels);
    }
  }
  // Calls `visit` with each channel, on several threads.
  template <typename Visit>
  void for_each(Visit visit) const {
    fork_by_elements(count, pixels_of_channel(), [&](int64_t begin, int64_t end) {
      for (int64_t channel = begin; channel < end; ++channel) {
        visit(channel);
      }
    });
  }
};

// Returns whether the tensor has planes of channels. The gradient of few pixels is a difference of nearly equal numbers, in
// which each rounding counts: it is LibTorch's, as is the norm.
bool are_planes(const at::Tensor& tensor) {
  constexpr int64_t kMinPixels = 8;
  return tensor.dim() >= 3 && tensor.scalar_type() == at::kFloat && tensor.numel() >= kMinPixels * tensor.size(1) &&
         tensor.numel() > 0 && tensor.is_contiguous() && tensor.suggest_memory_format() == at::MemoryFormat::Contiguous;
}

// Returns whether the argument is a float32 per channel, or None if that is allowed.
bool is_per_channel(const KernelArguments& arguments, size_t position, int64_t channels, bool may_be_none = true) {
  if (!arguments.is_tensor(position)) {
    return may_be_none && arguments.value(position).isNone();
  }
  const at::Tensor& tensor = arguments.tensor(position);
  return tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.sizes() == c10::IntArrayRef{channels};
}

Channels channels_of(const at::Tensor& tensor) {
  return {tensor.size(0), tensor.size(1), tensor.numel() / tensor.size(0) / tensor.size(1)};
}

// native_batch_norm(input, weight?, bias?, running_mean?, running_var?, training, momentum, eps)
class BatchNormKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& input = arguments.tensor(0);
    if (arguments.is_exact() || direct_kernels() == nullptr || !are_planes(input) || !arguments.value(5).toBool()) {
      return false;
    }
    channels_ = channels_of(input);
    for (size_t position = 1; position <= 4; ++position) {
      if (!is_per_channel(arguments, position, channels_.count)) {
        return false;
      }
    }
    if (arguments.is_tensor(3) != arguments.is_tensor(4)) {
      return false;
    }
    momentum_ = arguments.value(6).toDouble();
    eps_ = arguments.value(7).toDouble();
    results[0].place(input.sizes(), {}, at::kFloat);
    results[1].place({channels_.count}, {}, at::kFloat);
    results[2].place({channels_.count}, {}, at::kFloat);
    return true;
  }

  void run(const KernelArguments& arguments, KernelResults results) override {
    const float* input = memory_of(arguments, 0);
    const float* weight = memory_of(arguments, 1);
    const float* bias = memory_of(arguments, 2);
    float* running_mean = memory_of(arguments, 3);
    float* running_variance = memory_of(arguments, 4);
    auto* out = static_cast<float*>(results[0].data);
    auto* means = static_cast<float*>(results[1].data);
    auto* deviations = static_cast<float*>(results[2].data);
    const PlaneLoops& loops = direct_kernels()->planes;
    const auto count = static_cast<double>(channels_.pixels_of_channel());
    channels_.for_each([&](int64_t c) {
      const ChannelPixels x = channels_.read(input, c, 0);
      double sum = 0;
      for (int64_t i = 0; i < x.planes; ++i) {
        sum += loops.sum(x.first + i * x.distance, x.pixels);
      }
      const double mean = sum / count;
      means[c] = static_cast<float>(mean);
      double squares = 0;
      for (int64_t i = 0; i < x.planes; ++i) {
        squares += loops.sum_of_squares(x.first + i * x.distance, x.pixels, means[c]);
      }
      const double variance = squares / count;
      deviations[c] = static_cast<float>(variance == 0 && eps_ == 0 ? 0 : 1 / std::sqrt(variance + eps_));
      if (running_mean != nullptr) {
        running_mean[c] = static_cast<float>(momentum_ * mean + (1 - momentum_) * running_mean[c]);
      }
      if (running_variance != nullptr) {
        running_variance[c] =
            static_cast<float>(momentum_ * (squares / (count - 1)) + (1 - momentum_) * running_variance[c]);
      }
      const float scale = deviations[c] * (weight != nullptr ? weight[c] : 1);
      const float shift = (bias != nullptr ? bias[c] : 0) - means[c] * scale;
      const ChannelPixels y = channels_.room(out, c, 1);
      for (int64_t i = 0; i < x.planes; ++i) {
        loops.scale(x.first + i * x.distance, x.pixels, scale, shift, y.first + i * y.distance);
      }
      channels_.write(y, c, out);
    });
  }

 private:
  Channels channels_;
  double momentum_ = 0;
  double eps_ = 0;
};

// native_batch_norm_backward(grad_out, input, weight?, running_mean?, running_var?, save_mean?, save_invstd?, train, eps,
//                            output_mask)
class BatchNormGradientsKernel final : public ReusableKernel {
 public:
  static constexpr size_t kAsked = 9;

  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& gradient = arguments.tensor(0);
    const at::Tensor& input = arguments.tensor(1);
    if (arguments.is_exact() || direct_kernels() == nullptr || !are_planes(input) || !are_planes(gradient) ||
        gradient.sizes() != input.sizes() || !arguments.value(7).toBool()) {
      return false;
    }
    channels_ = channels_of(input);
    if (!is_per_channel(arguments, 2, channels_.count) ||
        !is_per_channel(arguments, 5, channels_.count, /*may_be_none=*/false) ||
        !is_per_channel(arguments, 6, channels_.count, /*may_be_none=*/false)) {
      return false;
    }
    const c10::List<bool> asked = arguments.value(kAsked).toBoolList();
    for (size_t i = 0; i < is_asked_.size(); ++i) {
      is_asked_[i] = asked.get(i);
      const int64_t channels = is_asked_[i] ? channels_.count : 0;
      results[i].place(is_asked_[i] && i == 0 ? input.sizes() : c10::IntArrayRef{channels}, {}, at::kFloat);
    }
    return true;
  }

  // dx = scale · (g - Σg / n - (x - mean) · deviation² · Σ(g · (x - mean)) / n), where `deviation` is the inverse one and
  // scale = deviation · weight (Ioffe and Szegedy, "Batch Normalization", 2015, section 3)
  void run(const KernelArguments& arguments, KernelResults results) override {
    const float* gradient = memory_of(arguments, 0);
    const float* input = memory_of(arguments, 1);
    const float* weight = memory_of(arguments, 2);
    const float* means = memory_of(arguments, 5);
    const float* deviations = memory_of(arguments, 6);
    const auto result = [&](size_t i) { return is_asked_[i] ? static_cast<float*>(results[i].data) : nullptr; };
    float* of_input = result(0);
    float* of_weight = result(1);
    float* of_bias = result(2);
    const PlaneLoops& loops = direct_kernels()->planes;
    const auto count = static_cast<double>(channels_.pixels_of_channel());
    channels_.for_each([&](int64_t c) {
      const ChannelPixels x = channels_.read(input, c, 0);
      const ChannelPixels flows = channels_.read(gradient, c, 1);
      double sum = 0;
      double product = 0;
      for (int64_t i = 0; i < x.planes; ++i) {
        loops.add_gradients(flows.first + i * flows.distance, x.first + i * x.distance, x.pixels, means[c], &sum, &product);
      }
      const double deviation = deviations[c];
      if (of_weight != nullptr) {
        of_weight[c] = static_cast<float>(product * deviation);
      }
      if (of_bias != nullptr) {
        of_bias[c] = static_cast<float>(sum);
      }
      if (of_input == nullptr) {
        return;
      }
      const PlaneGradient by = {.mean_gradient = static_cast<float>(sum / count),
                                .mean = means[c],
                                .of_x = static_cast<float>(product * deviation * deviation / count),
                                .scale = static_cast<float>(deviation * (weight != nullptr ? weight[c] : 1))};
      const ChannelPixels to = channels_.room(of_input, c, 2);
      for (int64_t i = 0; i < x.planes; ++i) {
        loops.scale_gradient(flows.first + i * flows.distance, x.first + i * x.distance, x.pixels, by,
                             to.first + i * to.distance);
      }
      channels_.write(to, c, of_input);
    });
  }

 private:
  Channels channels_;
  std::array<bool, 3> is_asked_ = {};
};

}  // namespace

void add_batch_norm_kernels(KernelTable& table) {
  table[{"aten::native_batch_norm", ""}] = {.make = make_kernel<BatchNormKernel>};
  table[{"aten::native_batch_norm_backward", ""}] = {.make = make_kernel<BatchNormGradientsKernel>,
                                                     .asked_results = BatchNormGradientsKernel::kAsked};
}

}  // namespace sconce
