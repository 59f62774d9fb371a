// Panels: the weights of a product or convolution, in the order in which tiles read them.
#pragma once

#include "kernels/loops/tiles.h"

#include <cstdint>
#include <vector>

namespace sconce {

// The weights of a convolution with `groups` groups, in elements from one to the next. A product is one of a single pixel:
// it has one group, and a kernel of one element.
struct ConvolutionWeights {
  const float* data = nullptr;
  const float* bias = nullptr;  // null: zeros
  int64_t column_distance = 0;  // a column is an output channel
  int64_t group_distance = 0;   // from the first column of one group to that of the next
  int64_t row_distance = 0;     // of the kernel
  int64_t pixel_distance = 0;   // of the kernel
  int64_t channel_distance = 0;
};

// How weights are packed: by panels of neighboring columns. A panel has the element of each column for the first row, pixel
// and channel, then those for the next channel, and so on through all channels, pixels and rows of the kernel.
class Panels {
 public:
  struct Panel {
    int64_t group;
    int64_t column;   // the first, of the result
    int64_t columns;  // others up to a whole number of vectors are zeros
    int vectors;
    int64_t begin;  // of its weights among all
    int64_t bias;   // begin of its biases among all
  };

  Panels() = default;
  // `columns`, `channels`: of a group.
  Panels(const TileKernels& kernels, int64_t groups, int64_t columns, int64_t kernel_rows, int64_t kernel_pixels,
         int64_t channels);

  const TileKernels& kernels() const { return *kernels_; }
  const std::vector<Panel>& panels() const { return panels_; }
  int64_t depth() const { return kernel_rows_ * kernel_pixels_ * channels_; }  // elements of a column
  int64_t columns() const { return columns_; }                                 // of all groups
  int64_t columns_of_group() const { return columns_ / groups_; }
  // How many elements packed weights and biases take.
  int64_t elements() const { return elements_; }
  // Packs weights, on LibTorch's intra-op threads. `packed`: room for `elements`.
  void pack(const ConvolutionWeights& weights, float* packed) const;
  // The same for some panels, on this thread.
  void pack(const ConvolutionWeights& weights, float* packed, int64_t first_panel, int64_t last_panel) const;

 private:
  void pack_rows(const ConvolutionWeights& weights, const Panel& panel, int64_t first, int64_t last, float* packed) const;
  void pack_pixel(const ConvolutionWeights& weights, const float* from, int64_t columns, int64_t width, float* to) const;

  const TileKernels* kernels_ = nullptr;
  std::vector<Panel> panels_;
  int64_t groups_ = 1;
  int64_t kernel_rows_ = 0;
  int64_t kernel_pixels_ = 0;
  int64_t channels_ = 0;
  int64_t columns_ = 0;
  int64_t elements_ = 0;
};

}  // namespace sconce
