#include "plan/prepared/packed/panels.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace sconce {

Panels::Panels(const TileKernels& kernels, int64_t groups, int64_t columns, int64_t kernel_rows, int64_t kernel_pixels,
               int64_t channels)
    : kernels_(&kernels),
      kernel_rows_(kernel_rows),
      kernel_pixels_(kernel_pixels),
      channels_(channels),
      columns_(groups * columns) {
  const int64_t lanes = kernels.lanes;
  const int64_t vectors = (columns + lanes - 1) / lanes;
  const int64_t panels =
      std::max((vectors + TileKernels::kMostVectors - 1) / TileKernels::kMostVectors, vectors / kernels.fastest_vectors);
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
  constexpr int64_t kElementsWorthAFork = 1 << 15;
  const int64_t of_panel = elements_ / static_cast<int64_t>(panels_.size());
  at::parallel_for(0, static_cast<int64_t>(panels_.size()), kElementsWorthAFork / of_panel + 1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       pack_panel(weights, panels_[static_cast<size_t>(i)], packed);
                     }
                   });
}

void Panels::pack_panel(const ConvolutionWeights& weights, const Panel& panel, float* packed) const {
  constexpr int64_t kBlock = 16;  // channels, of which the elements of all columns stay in the first level of the cache
  const int64_t width = panel.vectors * kernels_->lanes;
  float* to = packed + panel.begin;
  const float* const columns = weights.data + panel.column * weights.column_distance;
  for (int64_t y = 0; y < kernel_rows_; ++y) {
    for (int64_t x = 0; x < kernel_pixels_; ++x) {
      const float* const position = columns + y * weights.row_distance + x * weights.pixel_distance;
      for (int64_t first = 0; first < channels_; first += kBlock) {
        const int64_t channels = std::min(kBlock, channels_ - first);
        const float* const from = position + first * weights.channel_distance;
        for (int64_t j = 0; j < width; ++j) {
          for (int64_t c = 0; c < channels; ++c) {
            to[c * width + j] = j < panel.columns ? from[j * weights.column_distance + c * weights.channel_distance] : 0.0F;
          }
        }
        to += channels * width;
      }
    }
  }
  float* const bias = packed + panel.bias;
  std::fill_n(bias, width, 0.0F);
  if (weights.bias != nullptr) {
    std::copy_n(weights.bias + panel.column, panel.columns, bias);
  }
}

}  // namespace sconce
