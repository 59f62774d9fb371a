// ImageRows: the pixels of a convolution's result as the rows of a product.
#pragma once

#include "kernels/packed/packed_convolution.h"

#include <cstdint>
#include <vector>

namespace sconce {

// A row is what the kernel covers for one pixel of the result. It begins at the first channel of a pixel, and has a run of
// elements for each row of the kernel; if the kernel is dilated, for each element of it.
//
// Tiles read an image in place if it is channels-last and no kernel reaches over its border. Otherwise the rows of the image
// that some pixels of the result need are copied into the cache, channels-last and with zeros around them. A copied row has
// the pixels of one group of channels after those of the other, so that a run of neighboring pixels has no gaps.
class ImageRows {
 public:
  ImageRows() = default;
  explicit ImageRows(const ConvolutionForm& form);

  int64_t count() const { return form_.images * form_.pixels_out(); }
  // Pixels of the result that `find` takes together.
  int64_t unit() const { return unit_; }
  // The elements of the image that one more pixel of the result reads.
  int64_t elements() const;
  // The distances of the runs from where a row begins, of each group after the other.
  std::vector<int64_t> offsets() const;
  // The elements of a run.
  int64_t depth() const { return (runs_are_rows_ ? form_.kernel[1] : 1) * form_.channels_in / form_.groups; }
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
  int64_t rows_read(int64_t rows) const {
    return (rows - 1) * form_.stride[0] + (form_.kernel[0] - 1) * form_.dilation[0] + 1;
  }
  int64_t columns_read(int64_t columns) const {
    return (columns - 1) * form_.stride[1] + (form_.kernel[1] - 1) * form_.dilation[1] + 1;
  }
  void copy(const float* image, const Part& part, float* to) const;
  void copy_row(const float* image, int64_t row, int64_t first, int64_t last, float* to) const;
  void copy_pixels(const float* image, int64_t row, int64_t first, int64_t last, int64_t channel, float* to) const;

  ConvolutionForm form_;
  bool runs_are_rows_ = false;
  bool is_copied_ = false;
  // Of the image where tiles read it, in elements: from one row, pixel or group to the next.
  int64_t row_distance_ = 0;
  int64_t pixel_distance_ = 0;
  int64_t group_distance_ = 0;
  int64_t unit_ = 1;
};

}  // namespace sconce
