// Blocks of the channels of images, and the taps of windows over them.
#pragma once

#include "kernels/loops/direct_loops.h"

#include <algorithm>
#include <vector>

namespace sconce {

// A thread keeps memory for blocks of images with so many pixels: 4 MiB.
inline constexpr int64_t kMaxPixelsOfBlock = 1 << 16;

// Requires direct loops.
class ChannelBlocks {
 public:
  explicit ChannelBlocks(int64_t channels) : channels_(channels) {}

  int64_t lanes() const { return lanes_; }
  int64_t count() const { return (channels_ + lanes_ - 1) / lanes_; }
  int64_t first_channel(int64_t block) const { return block * lanes_; }
  int64_t channels_of(int64_t block) const { return std::min(lanes_, channels_ - block * lanes_); }

  // Reads the block of an image from images that lie one after the other. Lanes without a channel are zeros.
  void read(const float* images, int64_t image, int64_t block, int64_t pixels, bool is_channels_last, float* to) const {
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
  void write(const float* from, int64_t image, int64_t block, int64_t pixels, bool is_channels_last, float* images) const {
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

 private:
  const int64_t channels_;
  const int64_t lanes_ = direct_kernels()->lanes;
};

// The taps of an axis, by ascending offsets.
struct AxisTaps {
  std::vector<int64_t> offsets;
  std::vector<int64_t> weights;

  static AxisTaps of_window(int64_t size, int64_t padding, int64_t dilation) {
    AxisTaps taps;
    for (int64_t k = 0; k < size; ++k) {
      taps.add(k * dilation - padding, k);
    }
    return taps;
  }
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

}  // namespace sconce
