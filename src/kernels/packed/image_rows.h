// ImageRows: the pixels of a convolution's result as the rows of a product.
#pragma once

#include "kernels/packed/packed_convolution.h"

#include <cstdint>
#include <vector>

namespace sconce {

// What a kernel covers for each pixel of a result. Pixel i of a dimension reads the pixels of the image from
// i * stride - padding on, every `dilation`-th. Those outside of the image are zeros.
struct ImageWindows {
  int64_t images = 0;
  std::array<int64_t, 2> image = {};
  int64_t channels = 0;
  int64_t groups = 1;
  std::array<int64_t, 2> kernel = {};
  std::array<int64_t, 2> stride = {};
  std::array<int64_t, 2> padding = {};  // may be negative
  std::array<int64_t, 2> dilation = {};
  std::array<int64_t, 2> count = {};  // pixels of the result
  bool is_channels_last = true;       // the image; contiguous otherwise

  static ImageWindows of(const ConvolutionForm& form);
  int64_t of_image() const { return count[0] * count[1]; }
  int64_t pixels() const { return image[0] * image[1]; }
  // The pixels along a dimension from the first that `windows` neighboring windows cover to the last.
  int64_t covered(size_t dim, int64_t windows) const {
    return (windows - 1) * stride[dim] + (kernel[dim] - 1) * dilation[dim] + 1;
  }
  bool reach_over_border() const;
};

// A row is what the kernel covers for one pixel of the result. It begins at the first channel of a pixel, and has a run of
// elements for each row of the kernel; if the kernel is dilated, for each element of it.
//
// Tiles read an image in place if it is channels-last and no kernel reaches over its border. Otherwise the rows of the image
// that some pixels of the result need are copied into the cache, channels-last and with zeros around them. A copied row has
// the pixels of one group of channels after those of the other, so that a run of neighboring pixels has no gaps.
class ImageRows {
 public:
  ImageRows() = default;
  explicit ImageRows(const ConvolutionForm& form) : ImageRows(ImageWindows::of(form)) {}
  explicit ImageRows(const ImageWindows& windows);

  int64_t count() const { return windows_.images * windows_.of_image(); }
  // Pixels of the result that `find` takes together.
  int64_t unit() const { return unit_; }
  // The elements of the image that one more pixel of the result reads.
  int64_t elements() const;
  // The distances of the runs from where a row begins, of each group after the other.
  std::vector<int64_t> offsets() const;
  // The elements of a run.
  int64_t depth() const { return (runs_are_rows_ ? windows_.kernel[1] : 1) * windows_.channels / windows_.groups; }
  // Writes where the rows of some pixels begin. What is copied stays until the next call on this thread.
  void find(const float* image, int64_t first, int64_t last, const float** rows) const;

 private:
  // Neighboring pixels of the result in one image: rows `top` up to `bottom`, columns `left` up to `right`.
  struct Part {
    int64_t image;
    int64_t top;
    int64_t bottom;
    int64_t left;
    int64_t right;
  };
  Part part_at(int64_t first, int64_t last) const;
  void copy(const float* image, const Part& part, float* to) const;
  void copy_row(const float* image, int64_t row, int64_t first, int64_t last, float* to) const;
  void copy_pixels(const float* image, int64_t row, int64_t first, int64_t last, int64_t channel, float* to) const;

  ImageWindows windows_;
  bool runs_are_rows_ = false;
  bool is_copied_ = false;
  // Of the image where tiles read it, in elements: from one row, pixel or group to the next.
  int64_t row_distance_ = 0;
  int64_t pixel_distance_ = 0;
  int64_t group_distance_ = 0;
  int64_t unit_ = 1;
};

}  // namespace sconce
