#include "kernels/packed/block_convolution.h"

#include "kernels/loops/direct_loops.h"
#include "kernels/loops/forks.h"
#include "kernels/packed/channel_blocks.h"
#include "kernels/packed/scratch.h"
#include "kernels/packed/tiled_product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace sconce {
namespace {

thread_local Scratch convolution_block;
thread_local Scratch parts_of_gradients;

AxisTaps taps_of_image(const ConvolutionForm& form, size_t dim) {
  return AxisTaps::of_window(form.kernel[dim], form.padding[dim], form.dilation[dim]);
}

// Returns the taps of gradients of results that reach the pixels `remainder`, `remainder + stride`, and so on: pixel i of
// the image is read for position (i + padding - k · dilation) / stride, where that is a whole number.
AxisTaps taps_of_gradient(const ConvolutionForm& form, size_t dim, int64_t remainder) {
  AxisTaps taps;
  for (int64_t k = form.kernel[dim] - 1; k >= 0; --k) {
    const int64_t from = remainder + form.padding[dim] - k * form.dilation[dim];
    if (from % form.stride[dim] == 0) {
      taps.add(from / form.stride[dim], k);
    }
  }
  return taps;
}

class DepthwiseForward {
 public:
  DepthwiseForward(const ConvolutionForm& form, const ConvolutionMemory& memory, Bounds bounds)
      : form_(form),
        memory_(memory),
        bounds_(bounds),
        blocks_(form.channels_out),
        rows_(taps_of_image(form, 0)),
        columns_(taps_of_image(form, 1)) {}

  void run() const {
    const int64_t items = form_.images * blocks_.count();
    const int64_t of_item = std::max<int64_t>(form_.multiplications() / items, 1);
    fork_by_multiplications(items, of_item, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        run_block(i % form_.images, i / form_.images);
      }
    });
  }

 private:
  void run_block(int64_t image, int64_t block) const {
    const int64_t lanes = blocks_.lanes();
    const int64_t taps = form_.weights_of_output();
    float* pixels = convolution_block.of((form_.pixels_in() + form_.pixels_out() + taps + 1) * lanes);
    float* sums = pixels + form_.pixels_in() * lanes;
    float* weights = sums + form_.pixels_out() * lanes;
    float* bias = weights + taps * lanes;
    blocks_.read(memory_.image, image, block, form_.pixels_in(), form_.image_is_channels_last, pixels);
    blocks_.read(memory_.weight, 0, block, taps, /*is_channels_last=*/false, weights);
    if (memory_.bias != nullptr) {
      std::copy_n(memory_.bias + blocks_.first_channel(block), blocks_.channels_of(block), bias);
    }
    direct_kernels()->depthwise_sums({.rows = rows_.axis(form_.image[0], form_.size_out(0), form_.stride[0]),
                                      .columns = columns_.axis(form_.image[1], form_.size_out(1), form_.stride[1]),
                                      .in = pixels,
                                      .weights = weights,
                                      .bias = memory_.bias != nullptr ? bias : nullptr,
                                      .out = sums,
                                      .out_width = form_.size_out(1),
                                      .kernel_width = form_.kernel[1],
                                      .least = bounds_.least,
                                      .most = bounds_.most});
    blocks_.write(sums, image, block, form_.pixels_out(), form_.result_is_channels_last, memory_.out);
  }

  const ConvolutionForm& form_;
  const ConvolutionMemory& memory_;
  const Bounds bounds_;
  const ChannelBlocks blocks_;
  const AxisTaps rows_;
  const AxisTaps columns_;
};

class BlockConvolution final : public PackedConvolution {
 public:
  explicit BlockConvolution(Bounds bounds) : bounds_(bounds) {}

  void set_form(const ConvolutionForm& form) override { form_ = form; }

  bool is_ready(const KernelArguments& arguments, const ConvolutionOperands& operands) override {
    memory_.weight = static_cast<const float*>(arguments.data(operands.weight));
    const bool has_bias = operands.bias && arguments.is_tensor(*operands.bias);
    memory_.bias = has_bias ? static_cast<const float*>(arguments.data(*operands.bias)) : nullptr;
    return ignores_padding(form_, memory_.weight);
  }

  void run(const float* image, float* out, const RowsFunction& then) override {
    memory_.image = image;
    memory_.out = out;
    compute_convolution(form_, memory_, bounds_);
    if (then) {
      // A pixel is complete once all blocks are.
      constexpr int64_t kElementsTogether = 16 * 1024;
      at::parallel_for(0, form_.images * form_.pixels_out(), kElementsTogether / form_.channels_out + 1, then);
    }
  }

 private:
  const Bounds bounds_;
  ConvolutionForm form_;
  ConvolutionMemory memory_;
};

class BlockGradients {
 public:
  BlockGradients(const ConvolutionForm& form, const ConvolutionGradients& gradients)
      : form_(form),
        gradients_(gradients),
        blocks_(form.channels_out),
        rows_(taps_of_image(form, 0)),
        columns_(taps_of_image(form, 1)) {
    for (size_t dim = 0; dim < 2; ++dim) {
      for (int64_t i = 0; i < form.stride[dim]; ++i) {
        reaching_[dim].push_back(taps_of_gradient(form, dim, i));
      }
    }
  }

  void run() {
    // Images of a part add up to one gradient of weights, and parts to the whole. Their number does not depend on threads.
    constexpr int64_t kItems = 16;
    const int64_t wanted = std::clamp<int64_t>(kItems / blocks_.count(), 1, form_.images);
    const int64_t images = (form_.images + wanted - 1) / wanted;
    parts_ = (form_.images + images - 1) / images;
    part_ = parts_ > 1 ? parts_of_gradients.of(parts_ * elements_of_part()) : nullptr;
    const int64_t items = blocks_.count() * parts_;
    const int64_t of_item = std::max<int64_t>(form_.multiplications() / items, 1);
    fork_by_multiplications(items, of_item, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % parts_ * images;
        run_images(i / parts_, i % parts_, first, std::min(first + images, form_.images));
      }
    });
    if (parts_ > 1) {
      add_parts();
    }
  }

 private:
  int64_t weights() const { return form_.channels_out * form_.weights_of_output(); }
  int64_t elements_of_part() const { return weights() + form_.channels_out; }

  void run_images(int64_t block, int64_t part, int64_t first, int64_t last) const {
    const int64_t lanes = blocks_.lanes();
    float* gradient =
        convolution_block.of((form_.pixels_out() + form_.pixels_in() + 2 * form_.weights_of_output() + 1) * lanes);
    float* pixels = gradient + form_.pixels_out() * lanes;
    float* weights = pixels + form_.pixels_in() * lanes;
    float* of_weights = weights + form_.weights_of_output() * lanes;
    float* of_bias = of_weights + form_.weights_of_output() * lanes;
    std::fill_n(of_weights, (form_.weights_of_output() + 1) * lanes, 0.0F);
    if (gradients_.of_image != nullptr) {
      blocks_.read(gradients_.weight, 0, block, form_.weights_of_output(), /*is_channels_last=*/false, weights);
    }
    for (int64_t image = first; image < last; ++image) {
      blocks_.read(gradients_.gradient, image, block, form_.pixels_out(), form_.result_is_channels_last, gradient);
      if (gradients_.of_weight != nullptr) {
        blocks_.read(gradients_.image, image, block, form_.pixels_in(), form_.image_is_channels_last, pixels);
        direct_kernels()->depthwise_products({.rows = rows_.axis(form_.image[0], form_.size_out(0), form_.stride[0]),
                                              .columns = columns_.axis(form_.image[1], form_.size_out(1), form_.stride[1]),
                                              .in = pixels,
                                              .gradient = gradient,
                                              .weights = of_weights,
                                              .kernel_width = form_.kernel[1]});
      }
      if (gradients_.of_bias != nullptr) {
        direct_kernels()->add_pixels(gradient, form_.pixels_out(), of_bias);
      }
      if (gradients_.of_image != nullptr) {
        sum_to_image(gradient, weights, pixels);
        blocks_.write(pixels, image, block, form_.pixels_in(), gradients_.of_image_is_channels_last, gradients_.of_image);
      }
    }
    float* to_weights = part_ != nullptr ? part_ + part * elements_of_part() : gradients_.of_weight;
    float* to_bias = part_ != nullptr ? part_ + part * elements_of_part() + this->weights() : gradients_.of_bias;
    if (gradients_.of_weight != nullptr) {
      blocks_.write(of_weights, 0, block, form_.weights_of_output(), /*is_channels_last=*/false, to_weights);
    }
    if (gradients_.of_bias != nullptr) {
      std::copy_n(of_bias, blocks_.channels_of(block), to_bias + blocks_.first_channel(block));
    }
  }

  // Pixels whose places differ by a multiple of the stride are reached by the same taps.
  void sum_to_image(const float* gradient, const float* weights, float* pixels) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (size_t row = 0; row < reaching_[0].size(); ++row) {
      for (size_t column = 0; column < reaching_[1].size(); ++column) {
        direct_kernels()->depthwise_sums({.rows = axis_of_image(0, row),
                                          .columns = axis_of_image(1, column),
                                          .in = gradient,
                                          .weights = weights,
                                          .out = pixels,
                                          .out_width = form_.image[1],
                                          .kernel_width = form_.kernel[1],
                                          .least = -kInfinity,
                                          .most = kInfinity});
      }
    }
  }

  BlockAxis axis_of_image(size_t dim, size_t remainder) const {
    const int64_t stride = form_.stride[dim];
    const auto first = static_cast<int64_t>(remainder);
    const int64_t positions = (form_.image[dim] - first + stride - 1) / stride;
    BlockAxis axis = reaching_[dim][remainder].axis(form_.size_out(dim), std::max<int64_t>(positions, 0), 1);
    axis.first = first;
    axis.distance = stride;
    return axis;
  }

  void add_parts() {
    const auto add = [&](int64_t first, int64_t count, float* to) {
      for (int64_t i = 0; i < count && to != nullptr; ++i) {
        float sum = 0;
        for (int64_t part = 0; part < parts_; ++part) {
          sum += part_[part * elements_of_part() + first + i];
        }
        to[i] = sum;
      }
    };
    add(0, weights(), gradients_.of_weight);
    add(weights(), form_.channels_out, gradients_.of_bias);
  }

  const ConvolutionForm& form_;
  const ConvolutionGradients& gradients_;
  const ChannelBlocks blocks_;
  const AxisTaps rows_;
  const AxisTaps columns_;
  std::array<std::vector<AxisTaps>, 2> reaching_;  // per dimension and remainder of a pixel's place by the stride
  int64_t parts_ = 1;
  float* part_ = nullptr;  // {parts, weights and biases}; null: there is one
};

}  // namespace

bool suits_blocks(const ConvolutionForm& form) {
  return direct_kernels() != nullptr && form.is_depthwise() && form.pixels_in() <= kMaxPixelsOfBlock &&
         form.pixels_out() <= kMaxPixelsOfBlock;
}

std::unique_ptr<PackedConvolution> make_block_convolution(Bounds bounds) {
  return std::make_unique<BlockConvolution>(bounds);
}

void compute_convolution(const ConvolutionForm& form, const ConvolutionMemory& memory, Bounds bounds) {
  DepthwiseForward(form, memory, bounds).run();
}

void compute_gradients(const ConvolutionForm& form, const ConvolutionGradients& gradients) {
  BlockGradients(form, gradients).run();
}

}  // namespace sconce
