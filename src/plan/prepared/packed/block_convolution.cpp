#include "plan/prepared/packed/block_convolution.h"

#include "plan/prepared/packed/direct_loops.h"
#include "plan/prepared/packed/scratch.h"
#include "plan/prepared/packed/tiled_product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace sconce {
namespace {

thread_local Scratch block_scratch;
thread_local Scratch parts_of_gradients;

// The taps of an axis, by ascending offsets.
struct Taps {
  std::vector<int64_t> offsets;
  std::vector<int64_t> weights;

  void add(int64_t offset, int64_t weight) {
    offsets.push_back(offset);
    weights.push_back(weight);
  }
  BlockAxis axis(int64_t size, int64_t positions, int64_t step) const {
    return {.size = size,
            .positions = positions,
            .step = step,
            .taps = static_cast<int64_t>(offsets.size()),
            .offsets = offsets.data(),
            .weights = weights.data()};
  }
};

Taps taps_of_image(const ConvolutionForm& form, size_t dim) {
  Taps taps;
  for (int64_t k = 0; k < form.kernel[dim]; ++k) {
    taps.add(k * form.dilation[dim] - form.padding[dim], k);
  }
  return taps;
}

// Returns the taps of gradients of results that reach the pixels `remainder`, `remainder + stride`, and so on: pixel i of
// the image is read for position (i + padding - k · dilation) / stride, where that is a whole number.
Taps taps_of_gradient(const ConvolutionForm& form, size_t dim, int64_t remainder) {
  Taps taps;
  for (int64_t k = form.kernel[dim] - 1; k >= 0; --k) {
    const int64_t from = remainder + form.padding[dim] - k * form.dilation[dim];
    if (from % form.stride[dim] == 0) {
      taps.add(from / form.stride[dim], k);
    }
  }
  return taps;
}

// The blocks of channels of images.
class Blocks {
 public:
  explicit Blocks(const ConvolutionForm& form) : form_(form), channels_(form.channels_out) {}

  int64_t lanes() const { return lanes_; }
  int64_t count() const { return (channels_ + lanes_ - 1) / lanes_; }
  int64_t taps() const { return form_.kernel[0] * form_.kernel[1]; }
  int64_t first_channel(int64_t block) const { return block * lanes_; }
  int64_t channels_of(int64_t block) const { return std::min(lanes_, channels_ - block * lanes_); }

  void read_pixels(const float* images, int64_t image, int64_t block, int64_t pixels, bool is_channels_last,
                   float* to) const {
    const int64_t used = channels_of(block);
    const float* from = images + image * channels_ * pixels;
    if (!is_channels_last) {
      direct_kernels()->read_block(from + first_channel(block) * pixels, pixels, used, to);
      return;
    }
    for (int64_t i = 0; i < pixels; ++i, to += lanes_) {
      std::fill_n(std::copy_n(from + i * channels_ + first_channel(block), used, to), lanes_ - used, 0.0F);
    }
  }
  void write_pixels(const float* from, int64_t image, int64_t block, int64_t pixels, bool is_channels_last,
                    float* images) const {
    const int64_t used = channels_of(block);
    float* to = images + image * channels_ * pixels;
    if (!is_channels_last) {
      direct_kernels()->write_block(from, pixels, used, to + first_channel(block) * pixels);
      return;
    }
    for (int64_t i = 0; i < pixels; ++i, from += lanes_) {
      std::copy_n(from, used, to + i * channels_ + first_channel(block));
    }
  }
  void read_weights(const float* weights, int64_t block, float* to) const {
    read_pixels(weights, 0, block, taps(), false, to);
  }
  void write_weights(const float* from, int64_t block, float* weights) const {
    write_pixels(from, 0, block, taps(), false, weights);
  }

 private:
  const ConvolutionForm& form_;
  const int64_t channels_;
  const int64_t lanes_ = direct_kernels()->lanes;
};

class BlockConvolution final : public PackedConvolution {
 public:
  explicit BlockConvolution(Bounds bounds) : bounds_(bounds) {}

  void set_form(const ConvolutionForm& form) override {
    form_ = form;
    rows_ = taps_of_image(form, 0);
    columns_ = taps_of_image(form, 1);
  }

  bool is_ready(const KernelArguments& arguments, const ConvolutionOperands& operands) override {
    weights_ = static_cast<const float*>(arguments.data(operands.weight));
    const bool has_bias = operands.bias && arguments.is_tensor(*operands.bias);
    bias_ = has_bias ? static_cast<const float*>(arguments.data(*operands.bias)) : nullptr;
    return ignores_padding(form_, weights_);
  }

  void run(const float* image, float* out, const RowsFunction& then) override {
    const Blocks blocks(form_);
    const int64_t items = form_.images * blocks.count();
    const int64_t of_item = std::max<int64_t>(form_.multiplications() / items, 1);
    at::parallel_for(0, items, kMultiplicationsWorthAFork / of_item + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        run_block(blocks, i % form_.images, i / form_.images, image, out);
      }
    });
    if (then) {
      // A pixel is complete once all blocks are.
      constexpr int64_t kElementsTogether = 16 * 1024;
      at::parallel_for(0, form_.images * form_.pixels_out(), kElementsTogether / form_.channels_out + 1, then);
    }
  }

 private:
  void run_block(const Blocks& blocks, int64_t image, int64_t block, const float* images, float* results) const {
    const int64_t lanes = blocks.lanes();
    float* pixels = block_scratch.of((form_.pixels_in() + form_.pixels_out() + blocks.taps() + 1) * lanes);
    float* sums = pixels + form_.pixels_in() * lanes;
    float* weights = sums + form_.pixels_out() * lanes;
    float* bias = weights + blocks.taps() * lanes;
    blocks.read_pixels(images, image, block, form_.pixels_in(), form_.image_is_channels_last, pixels);
    blocks.read_weights(weights_, block, weights);
    if (bias_ != nullptr) {
      std::copy_n(bias_ + blocks.first_channel(block), blocks.channels_of(block), bias);
    }
    direct_kernels()->depthwise_sums({.rows = rows_.axis(form_.image[0], form_.size_out(0), form_.stride[0]),
                                      .columns = columns_.axis(form_.image[1], form_.size_out(1), form_.stride[1]),
                                      .in = pixels,
                                      .weights = weights,
                                      .bias = bias_ != nullptr ? bias : nullptr,
                                      .out = sums,
                                      .out_width = form_.size_out(1),
                                      .kernel_width = form_.kernel[1],
                                      .least = bounds_.least,
                                      .most = bounds_.most});
    blocks.write_pixels(sums, image, block, form_.pixels_out(), form_.result_is_channels_last, results);
  }

  const Bounds bounds_;
  ConvolutionForm form_;
  Taps rows_;
  Taps columns_;
  const float* weights_ = nullptr;
  const float* bias_ = nullptr;
};

class BlockGradients {
 public:
  BlockGradients(const ConvolutionForm& form, const ConvolutionGradients& gradients)
      : form_(form), gradients_(gradients), blocks_(form), rows_(taps_of_image(form, 0)), columns_(taps_of_image(form, 1)) {
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
    at::parallel_for(0, items, kMultiplicationsWorthAFork / of_item + 1, [&](int64_t begin, int64_t end) {
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
  int64_t weights() const { return form_.channels_out * blocks_.taps(); }
  int64_t elements_of_part() const { return weights() + form_.channels_out; }

  void run_images(int64_t block, int64_t part, int64_t first, int64_t last) const {
    const int64_t lanes = blocks_.lanes();
    float* gradient = block_scratch.of((form_.pixels_out() + form_.pixels_in() + 2 * blocks_.taps() + 1) * lanes);
    float* pixels = gradient + form_.pixels_out() * lanes;
    float* weights = pixels + form_.pixels_in() * lanes;
    float* of_weights = weights + blocks_.taps() * lanes;
    float* of_bias = of_weights + blocks_.taps() * lanes;
    std::fill_n(of_weights, (blocks_.taps() + 1) * lanes, 0.0F);
    if (gradients_.of_image != nullptr) {
      blocks_.read_weights(gradients_.weight, block, weights);
    }
    for (int64_t image = first; image < last; ++image) {
      blocks_.read_pixels(gradients_.gradient, image, block, form_.pixels_out(), form_.result_is_channels_last, gradient);
      if (gradients_.of_weight != nullptr) {
        blocks_.read_pixels(gradients_.image, image, block, form_.pixels_in(), form_.image_is_channels_last, pixels);
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
        blocks_.write_pixels(pixels, image, block, form_.pixels_in(), gradients_.of_image_is_channels_last,
                             gradients_.of_image);
      }
    }
    float* to_weights = part_ != nullptr ? part_ + part * elements_of_part() : gradients_.of_weight;
    float* to_bias = part_ != nullptr ? part_ + part * elements_of_part() + this->weights() : gradients_.of_bias;
    if (gradients_.of_weight != nullptr) {
      blocks_.write_weights(of_weights, block, to_weights);
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
  const Blocks blocks_;
  const Taps rows_;
  const Taps columns_;
  std::array<std::vector<Taps>, 2> reaching_;  // per dimension and remainder of a pixel's place by the stride
  int64_t parts_ = 1;
  float* part_ = nullptr;  // {parts, weights and biases}; null: there is one
};

}  // namespace

bool suits_blocks(const ConvolutionForm& form) { return direct_kernels() != nullptr && form.is_depthwise(); }

std::unique_ptr<PackedConvolution> make_block_convolution(Bounds bounds) {
  return std::make_unique<BlockConvolution>(bounds);
}

void compute_gradients(const ConvolutionForm& form, const ConvolutionGradients& gradients) {
  BlockGradients(form, gradients).run();
}

}  // namespace sconce
