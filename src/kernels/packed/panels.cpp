#include "kernels/packed/panels.h"

#include "kernels/loops/forks.h"
#include "kernels/loops/transpose.h"

#include <algorithm>
#include <cstring>

namespace sconce {

Panels::Panels(const TileKernels& kernels, int64_t groups, int64_t columns, int64_t kernel_rows, int64_t kernel_pixels,
               int64_t channels)
    : kernels_(&kernels),
      groups_(groups),
      kernel_rows_(kernel_rows),
      kernel_pixels_(kernel_pixels),
      channels_(channels),
      columns_(groups * columns) {
  const int64_t lanes = kernels.lanes;
  const int64_t vectors = (columns + lanes - 1) / lanes;
  const int64_t panels =
      std::max((vectors + TileKernels::kMaxVectors - 1) / TileKernels::kMaxVectors, vectors / kernels.fastest_vectors);
  int64_t bias = depth() * vectors * lanes * groups;
  for (int64_t group = 0; group < groups; ++group) {
    for (int64_t i = 0; i < panels; ++i) {
      // As alike as possible: five vectors are two and three.
      const int64_t first = vectors * i / panels;
      const int64_t last = vectors * (i + 1) / panels;
      panels_.push_back({.group = group,
                         .column = group * columns + first * lanes,
                         .columns = std::min(last * lanes, columns) - first * lanes,
                         .vectors = static_cast<int>(last - first),
                         .begin = elements_,
                         .bias = bias});
      elements_ += depth() * (last - first) * lanes;
      bias += (last - first) * lanes;
    }
  }
  elements_ = bias;
}

void Panels::pack(const ConvolutionWeights& weights, float* packed) const {
  const int64_t items = static_cast<int64_t>(panels_.size()) * kernel_rows_;
  fork_by_elements(items, elements_ / items, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t first = begin % kernel_rows_;
      const int64_t last = std::min(first + end - begin, kernel_rows_);
      pack_rows(weights, panels_[static_cast<size_t>(begin / kernel_rows_)], first, last, packed);
      begin += last - first;
    }
  });
}

void Panels::pack(const ConvolutionWeights& weights, float* packed, int64_t first_panel, int64_t last_panel) const {
  for (int64_t i = first_panel; i < last_panel; ++i) {
    pack_rows(weights, panels_[static_cast<size_t>(i)], 0, kernel_rows_, packed);
  }
}

// Packs some rows of the kernel, and with the first row the biases.
void Panels::pack_rows(const ConvolutionWeights& weights, const Panel& panel, int64_t first, int64_t last,
                       float* packed) const {
  const int64_t width = panel.vectors * kernels_->lanes;
  const int64_t of_row = kernel_pixels_ * channels_ * width;
  const float* const columns = weights.data + panel.group * weights.group_distance +
                               (panel.column - panel.group * columns_of_group()) * weights.column_distance;
  for (int64_t y = first; y < last; ++y) {
    float* to = packed + panel.begin + y * of_row;
    for (int64_t x = 0; x < kernel_pixels_; ++x, to += channels_ * width) {
      pack_pixel(weights, columns + y * weights.row_distance + x * weights.pixel_distance, panel.columns, width, to);
    }
  }
  if (first > 0) {
    return;
  }
  float* const bias = packed + panel.bias;
  std::fill_n(bias, width, 0.0F);
  if (weights.bias != nullptr) {
    std::copy_n(weights.bias + panel.column, panel.columns, bias);
  }
}

// `from`: the weights of one pixel of the kernel, for the first column and channel.
void Panels::pack_pixel(const ConvolutionWeights& weights, const float* from, int64_t columns, int64_t width,
                        float* to) const {
  for (int64_t c = 0; c < channels_ && columns < width; ++c) {
    std::fill(to + c * width + columns, to + (c + 1) * width, 0.0F);
  }
  if (weights.channel_distance == 1) {
    transpose(from, weights.column_distance, columns, channels_, to, width);
    return;
  }
  constexpr int64_t kBlock = 16;  // channels, of which the elements of all columns stay in the first level of the cache
  for (int64_t first = 0; first < channels_; first += kBlock) {
    const int64_t end = std::min(first + kBlock, channels_);
    for (int64_t c = first; c < end && weights.column_distance == 1; ++c) {
      std::memcpy(to + c * width, from + c * weights.channel_distance, static_cast<size_t>(columns) * sizeof(float));
    }
    for (int64_t j = 0; j < columns && weights.column_distance != 1; ++j) {
      for (int64_t c = first; c < end; ++c) {
        to[c * width + j] = from[j * weights.column_distance + c * weights.channel_distance];
      }
    }
  }
}

}  // namespace sconce
