#include "kernels/packed/tiled_gradients.h"

#include "kernels/loops/direct_loops.h"
#include "kernels/loops/forks.h"
#include "kernels/loops/transpose.h"
#include "kernels/packed/image_rows.h"
#include "kernels/packed/tiled_product.h"
#include "plan/large_blocks.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace sconce {
namespace {

// Memory for elements of float32, as long as the object lives.
class Elements {
 public:
  explicit Elements(int64_t count) : memory_(allocate_large(static_cast<size_t>(count) * sizeof(float))) {}
  float* data() const { return static_cast<float*>(memory_.get()); }

 private:
  c10::DataPtr memory_;
};

// Calls the function for items that read or write so many elements each, on LibTorch's intra-op threads.
template <typename Function>
void for_items(int64_t items, int64_t elements, const Function& function) {
  fork_by_elements(items, elements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      function(i);
    }
  });
}

// The elements of the kernel, along one dimension, that reach the pixels `first`, `first + stride`, and so on of the image.
// Element first_tap + i * tap_step reads the result's gradient at `i` times `dilation` before pixel `from`.
struct Taps {
  int64_t first = 0;
  int64_t pixels = 0;
  int64_t first_tap = 0;
  int64_t tap_step = 1;
  int64_t count = 0;
  int64_t from = 0;
  int64_t dilation = 1;
};

// Pixel i of the image is read for position (i + padding - k * dilation) / stride, where that is a whole number.
Taps taps_of(const ConvolutionForm& form, size_t dim, int64_t first) {
  const int64_t common = std::gcd(form.stride[dim], form.dilation[dim]);
  Taps taps{.first = first,
            .pixels = (form.image[dim] - first + form.stride[dim] - 1) / form.stride[dim],
            .tap_step = form.stride[dim] / common,
            .dilation = form.dilation[dim] / common};
  for (int64_t k = 0; k < std::min(taps.tap_step, form.kernel[dim]); ++k) {
    const int64_t from = first + form.padding[dim] - k * form.dilation[dim];
    if (from % form.stride[dim] == 0) {
      taps.first_tap = k;
      taps.count = (form.kernel[dim] - 1 - k) / taps.tap_step + 1;
      taps.from = from / form.stride[dim];
    }
  }
  return taps;
}

class GradientOfImage {
 public:
  GradientOfImage(const ConvolutionForm& form, const ConvolutionGradients& gradients) : form_(form), gradients_(gradients) {}

  void run() const {
    for (int64_t y = 0; y < std::min(form_.stride[0], form_.image[0]); ++y) {
      for (int64_t x = 0; x < std::min(form_.stride[1], form_.image[1]); ++x) {
        run_pixels(taps_of(form_, 0, y), taps_of(form_, 1, x));
      }
    }
  }

 private:
  // Computes the pixels that the same elements of the kernel reach.
  void run_pixels(const Taps& rows, const Taps& columns) const {
    const int64_t channels = form_.channels_in;
    const int64_t pixels = rows.pixels * columns.pixels;
    const bool are_dense = form_.stride == std::array<int64_t, 2>{1, 1} && gradients_.of_image_is_channels_last;
    const std::optional<Elements> own =
        are_dense ? std::nullopt : std::optional<Elements>(std::in_place, form_.images * pixels * channels);
    float* const sums = are_dense ? gradients_.of_image : own->data();
    if (rows.count > 0 && columns.count > 0) {
      multiply(rows, columns, sums);
    } else {
      std::fill_n(sums, form_.images * pixels * channels, 0.0F);
    }
    if (!are_dense) {
      store(rows, columns, sums);
    }
  }

  void multiply(const Taps& rows, const Taps& columns, float* sums) const {
    const int64_t of_group_in = form_.channels_in / form_.groups;
    const int64_t of_group_out = form_.channels_out / form_.groups;
    const int64_t area = form_.kernel[0] * form_.kernel[1];
    // The kernel is turned around, so that positions ascend.
    const ImageRows windows(
        {.images = form_.images,
         .image = {form_.size_out(0), form_.size_out(1)},
         .channels = form_.channels_out,
         .groups = form_.groups,
         .kernel = {rows.count, columns.count},
         .stride = {1, 1},
         .padding = {(rows.count - 1) * rows.dilation - rows.from, (columns.count - 1) * columns.dilation - columns.from},
         .dilation = {rows.dilation, columns.dilation},
         .count = {rows.pixels, columns.pixels},
         .is_channels_last = form_.result_is_channels_last});
    const TiledProduct product(Panels(tile_kernels(), form_.groups, of_group_in, rows.count, columns.count, of_group_out),
                               windows.offsets(), windows.depth());
    const bool is_last = form_.weight_is_channels_last;
    const int64_t pixel = is_last ? of_group_in : 1;
    const int64_t last_tap = (rows.first_tap + (rows.count - 1) * rows.tap_step) * form_.kernel[1] + columns.first_tap +
                             (columns.count - 1) * columns.tap_step;
    const Elements packed(product.panels().elements());
    product.panels().pack({.data = gradients_.weight + last_tap * pixel,
                           .column_distance = is_last ? 1 : area,
                           .group_distance = of_group_out * of_group_in * area,
                           .row_distance = -rows.tap_step * form_.kernel[1] * pixel,
                           .pixel_distance = -columns.tap_step * pixel,
                           .channel_distance = of_group_in * area},
                          packed.data());
    const auto find = [&](int64_t first, int64_t last, const float** found) {
      windows.find(gradients_.gradient, first, last, found);
    };
    product.run(packed.data(),
                {.count = windows.count(), .unit = windows.unit(), .elements = windows.elements(), .find = find}, sums,
                /*bounds=*/nullptr);
  }

  // Stores channels-last sums among the pixels of the image.
  void store(const Taps& rows, const Taps& columns, const float* sums) const {
    const int64_t channels = form_.channels_in;
    for_items(form_.images * rows.pixels, columns.pixels * channels, [&](int64_t i) {
      const float* from = sums + i * columns.pixels * channels;
      const int64_t image = i / rows.pixels * channels * form_.pixels_in();
      const int64_t pixel = (rows.first + i % rows.pixels * form_.stride[0]) * form_.image[1] + columns.first;
      if (gradients_.of_image_is_channels_last) {
        float* to = gradients_.of_image + image + pixel * channels;
        for (int64_t x = 0; x < columns.pixels; ++x, from += channels, to += form_.stride[1] * channels) {
          std::copy_n(from, channels, to);
        }
        return;
      }
      float* const to = gradients_.of_image + image + pixel;
      if (form_.stride[1] == 1) {
        transpose(from, channels, columns.pixels, channels, to, form_.pixels_in());
        return;
      }
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t x = 0; x < columns.pixels; ++x) {
          to[c * form_.pixels_in() + x * form_.stride[1]] = from[x * channels + c];
        }
      }
    });
  }

  const ConvolutionForm& form_;
  const ConvolutionGradients& gradients_;
};

// A row of the product is an element of the kernel for one channel: what it reads in all images, row by row of the result.
// So that neighbors of a row lie side by side, images are copied contiguously with zeros around them, and with those columns
// together that the stride takes together.
class GradientOfWeights {
 public:
  GradientOfWeights(const ConvolutionForm& form, const ConvolutionGradients& gradients)
      : form_(form), gradients_(gradients), height_(covered(0)), part_width_((covered(1) - 1) / form.stride[1] + 1) {}

  void run() {
    const int64_t of_image = form_.channels_in * plane() + form_.channels_out * form_.pixels_out();
    const int64_t together = std::clamp<int64_t>(kMaxElements / of_image, 1, form_.images);
    const Elements copies(together * form_.channels_in * plane());
    const Elements product(rows() * form_.channels_out);
    std::vector<double> of_bias(static_cast<size_t>(form_.channels_out));
    for (int64_t first = 0; first < form_.images; first += together) {
      const int64_t images = std::min(together, form_.images - first);
      const TiledProduct tiles = product_of(images);
      const Elements packed(tiles.panels().elements());
      pack(tiles.panels(), first, packed.data());
      if (gradients_.of_weight != nullptr) {
        copy(first, images, copies.data());
        multiply(tiles, packed.data(), copies.data(), first > 0, product.data());
      }
      if (gradients_.of_bias != nullptr) {
        add_pixels(tiles.panels(), packed.data(), of_bias.data());
      }
    }
    if (gradients_.of_weight != nullptr) {
      store(product.data());
    }
    if (gradients_.of_bias != nullptr) {
      std::ranges::transform(of_bias, gradients_.of_bias, [](double sum) { return static_cast<float>(sum); });
    }
  }

 private:
  // Of the copies and packed gradients of some images.
  static constexpr int64_t kMaxElements = 1 << 21;

  int64_t channels() const { return form_.channels_in / form_.groups; }
  int64_t rows() const { return channels() * form_.kernel[0] * form_.kernel[1]; }
  // The pixels of an image, with zeros around it, that the kernel covers.
  int64_t covered(size_t dim) const { return ImageWindows::of(form_).covered(dim, form_.size_out(dim)); }
  int64_t row_distance() const { return part_width_ * form_.stride[1]; }
  int64_t plane() const { return height_ * row_distance(); }
  // Where a column of a padded image is in a row of the copy.
  int64_t place_of(int64_t column) const { return column % form_.stride[1] * part_width_ + column / form_.stride[1]; }

  TiledProduct product_of(int64_t images) const {
    std::vector<int64_t> offsets;
    for (int64_t group = 0; group < form_.groups; ++group) {
      for (int64_t image = 0; image < images; ++image) {
        for (int64_t y = 0; y < form_.size_out(0); ++y) {
          offsets.push_back((image * form_.channels_in + group * channels()) * plane() +
                            y * form_.stride[0] * row_distance());
        }
      }
    }
    return {Panels(tile_kernels(), form_.groups, form_.channels_out / form_.groups, images, form_.size_out(0),
                   form_.size_out(1)),
            std::move(offsets), form_.size_out(1)};
  }

  void pack(const Panels& panels, int64_t first, float* to) const {
    const bool is_last = form_.result_is_channels_last;
    const int64_t of_image = form_.channels_out * form_.pixels_out();
    const int64_t column = is_last ? 1 : form_.pixels_out();
    const int64_t pixel = is_last ? form_.channels_out : 1;
    panels.pack({.data = gradients_.gradient + first * of_image,
                 .column_distance = column,
                 .group_distance = form_.channels_out / form_.groups * column,
                 .row_distance = of_image,
                 .pixel_distance = form_.size_out(1) * pixel,
                 .channel_distance = pixel},
                to);
  }

  void copy(int64_t first, int64_t images, float* to) const {
    if (!form_.image_is_channels_last) {
      for_items(images * form_.channels_in, plane(), [&](int64_t i) {
        const float* from = gradients_.image + (first * form_.channels_in + i) * form_.pixels_in();
        for (int64_t y = 0; y < height_; ++y) {
          copy_row(from, y - form_.padding[0], to + i * plane() + y * row_distance());
        }
      });
      return;
    }
    for_items(images * height_, row_distance() * form_.channels_in, [&](int64_t i) {
      const int64_t image = i / height_;
      copy_pixels(gradients_.image + (first + image) * form_.channels_in * form_.pixels_in(), i % height_ - form_.padding[0],
                  to + image * form_.channels_in * plane() + i % height_ * row_distance());
    });
  }

  // Copies row `y` of one channel.
  void copy_row(const float* from, int64_t y, float* to) const {
    const auto [begin, end] = columns_within(y);
    std::fill_n(to, begin < end && form_.stride[1] == 1 ? begin : row_distance(), 0.0F);
    from += y * form_.image[1] - form_.padding[1];
    if (form_.stride[1] == 1) {
      if (begin < end) {
        std::copy(from + begin, from + end, to + begin);
        std::fill(to + end, to + row_distance(), 0.0F);
      }
      return;
    }
    for (int64_t column = begin; column < end; ++column) {
      to[place_of(column)] = from[column];
    }
  }

  // Copies row `y` of a channels-last image.
  void copy_pixels(const float* image, int64_t y, float* to) const {
    const int64_t all = form_.channels_in;
    const auto [begin, end] = columns_within(y);
    for (int64_t c = 0; c < all && (end - begin < row_distance()); ++c) {
      std::fill_n(to + c * plane(), row_distance(), 0.0F);
    }
    const int64_t pixel = y * form_.image[1] - form_.padding[1];
    if (form_.stride[1] == 1) {
      if (begin < end) {
        transpose(image + (pixel + begin) * all, all, end - begin, all, to + begin, plane());
      }
      return;
    }
    for (int64_t column = begin; column < end; ++column) {
      for (int64_t c = 0; c < all; ++c) {
        to[c * plane() + place_of(column)] = image[(pixel + column) * all + c];
      }
    }
  }

  // Returns the columns of a padded row that are in the image.
  std::pair<int64_t, int64_t> columns_within(int64_t y) const {
    const int64_t columns = covered(1);
    if (y < 0 || y >= form_.image[0]) {
      return {columns, columns};
    }
    const int64_t begin = std::min(form_.padding[1], columns);
    return {begin, std::clamp(form_.padding[1] + form_.image[1], begin, columns)};
  }

  void multiply(const TiledProduct& tiles, const float* packed, const float* copies, bool adds, float* product) const {
    const auto find = [&](int64_t first, int64_t last, const float** found) {
      for (int64_t row = first; row < last; ++row) {
        const int64_t column = row % form_.kernel[1];
        const int64_t y = row / form_.kernel[1] % form_.kernel[0];
        const int64_t channel = row / (form_.kernel[0] * form_.kernel[1]);
        *found++ =
            copies + channel * plane() + y * form_.dilation[0] * row_distance() + place_of(column * form_.dilation[1]);
      }
    };
    const int64_t area = form_.kernel[0] * form_.kernel[1];
    tiles.run(packed, {.count = rows(), .elements = tiles.panels().depth() / area + 1, .find = find}, product,
              /*bounds=*/nullptr, /*then=*/nullptr, adds);
  }

  // Writes the product, {elements of the kernel, channels of the result}.
  void store(const float* product) const {
    const int64_t area = form_.kernel[0] * form_.kernel[1];
    constexpr int64_t kBlock = 32;  // channels
    const int64_t blocks = (form_.channels_out + kBlock - 1) / kBlock;
    for_items(blocks, kBlock * rows(), [&](int64_t block) {
      const int64_t first = block * kBlock;
      const int64_t count = std::min(kBlock, form_.channels_out - first);
      float* const to = gradients_.of_weight + first * rows();
      if (!gradients_.of_weight_is_channels_last) {
        transpose(product + first, form_.channels_out, rows(), count, to, rows());
        return;
      }
      for (int64_t i = 0; i < area; ++i) {
        transpose(product + i * form_.channels_out + first, area * form_.channels_out, channels(), count,
                  to + i * channels(), rows());
      }
    });
  }

  // Adds the packed gradients of each channel. Those of an image are added first.
  static void add_pixels(const Panels& panels, const float* packed, double* sums) {
    constexpr int64_t kTogether = 256;
    for_items(static_cast<int64_t>(panels.panels().size()), panels.depth(), [&](int64_t i) {
      const Panels::Panel& panel = panels.panels()[static_cast<size_t>(i)];
      const int64_t width = panel.vectors * panels.kernels().lanes;
      for (int64_t first = 0; first < panels.depth(); first += kTogether) {
        std::array<float, 16 * TileKernels::kMaxVectors> part = {};
        for (int64_t k = first; k < std::min(first + kTogether, panels.depth()); ++k) {
          const float* const from = packed + panel.begin + k * width;
          for (int64_t j = 0; j < width; ++j) {
            part[static_cast<size_t>(j)] += from[j];
          }
        }
        for (int64_t j = 0; j < panel.columns; ++j) {
          sums[panel.column + j] += part[static_cast<size_t>(j)];
        }
      }
    });
  }

  const ConvolutionForm& form_;
  const ConvolutionGradients& gradients_;
  const int64_t height_;      // of a copied plane
  const int64_t part_width_;  // of the columns of a copied row that the stride takes together
};

}  // namespace

bool suits_tiled_gradients(const ConvolutionForm& form) {
  constexpr int64_t kMultiplicationsThatPay = 1 << 20;
  constexpr int64_t kChannelsThatPay = 4;  // of a group, of which others leave too much of a vector empty
  return direct_kernels() != nullptr && form.multiplications() >= kMultiplicationsThatPay &&
         (form.groups == 1 || std::min(form.channels_in, form.channels_out) / form.groups >= kChannelsThatPay);
}

void compute_gradients_by_tiles(const ConvolutionForm& form, const ConvolutionGradients& gradients) {
  if (gradients.of_image != nullptr) {
    GradientOfImage(form, gradients).run();
  }
  if (gradients.of_weight != nullptr || gradients.of_bias != nullptr) {
    GradientOfWeights(form, gradients).run();
  }
}

}  // namespace sconce
