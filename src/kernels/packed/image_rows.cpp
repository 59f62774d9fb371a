#include "kernels/packed/image_rows.h"

#include "kernels/loops/transpose.h"

#include <c10/util/SmallVector.h>

#include <algorithm>

namespace sconce {

ImageWindows ImageWindows::of(const ConvolutionForm& form) {
  return {.images = form.images,
          .image = form.image,
          .channels = form.channels_in,
          .groups = form.groups,
          .kernel = form.kernel,
          .stride = form.stride,
          .padding = form.padding,
          .dilation = form.dilation,
          .count = {form.size_out(0), form.size_out(1)},
          .is_channels_last = form.image_is_channels_last};
}

bool ImageWindows::reach_over_border() const {
  for (size_t dim = 0; dim < 2; ++dim) {
    if (padding[dim] > 0 || covered(dim, count[dim]) - padding[dim] > image[dim]) {
      return true;
    }
  }
  return false;
}

ImageRows::ImageRows(const ImageWindows& windows)
    : windows_(windows),
      runs_are_rows_(windows.dilation[1] == 1),
      is_copied_(!windows.is_channels_last || windows.reach_over_border() || (windows.groups > 1 && windows.kernel[1] > 1)) {
  const int64_t width = is_copied_ ? windows.covered(1, windows.count[1]) : windows.image[1];
  const int64_t channels = windows.channels / windows.groups;
  row_distance_ = width * windows.channels;
  pixel_distance_ = is_copied_ ? channels : windows.channels;
  group_distance_ = is_copied_ ? width * channels : channels;
  // Copies of whole rows overlap least.
  constexpr int64_t kMaxTogether = 16 * 1024;
  const bool overlaps = is_copied_ && windows.kernel[0] > 1 && windows.count[0] > 1;
  unit_ = overlaps && row_distance_ <= kMaxTogether ? windows.count[1] : 1;
}

int64_t ImageRows::elements() const {
  return std::max<int64_t>(1, windows_.images * windows_.channels * windows_.pixels() / count());
}

std::vector<int64_t> ImageRows::offsets() const {
  std::vector<int64_t> offsets;
  for (int64_t group = 0; group < windows_.groups; ++group) {
    for (int64_t y = 0; y < windows_.kernel[0]; ++y) {
      for (int64_t x = 0; x < (runs_are_rows_ ? 1 : windows_.kernel[1]); ++x) {
        offsets.push_back(group * group_distance_ + y * windows_.dilation[0] * row_distance_ +
                          x * windows_.dilation[1] * pixel_distance_);
      }
    }
  }
  return offsets;
}

// Returns the pixels from `first` on that lie in one image, and in one row unless `first` begins one.
ImageRows::Part ImageRows::part_at(int64_t first, int64_t last) const {
  const int64_t width = windows_.count[1];
  const int64_t row = first / width;
  const int64_t image = row / windows_.count[0];
  const int64_t top = row % windows_.count[0];
  const int64_t left = first % width;
  last = std::min(last, (image + 1) * windows_.of_image());
  if (left > 0 || last - first < width) {
    return {image, top, top + 1, left, std::min(width, left + last - first)};
  }
  return {image, top, top + (last - first) / width, 0, width};
}

void ImageRows::find(const float* image, int64_t first, int64_t last, const float** rows) const {
  static thread_local std::vector<float> copies;
  c10::SmallVector<Part, 8> parts;
  int64_t rows_copied = 0;
  for (int64_t at = first; at < last;) {
    parts.push_back(part_at(at, last));
    const Part& part = parts.back();
    at += (part.bottom - part.top) * (part.right - part.left);
    rows_copied += windows_.covered(0, part.bottom - part.top);
  }
  if (is_copied_ && copies.size() < static_cast<size_t>(rows_copied * row_distance_)) {
    copies.resize(static_cast<size_t>(rows_copied * row_distance_));
  }
  float* copied = copies.data();
  for (const Part& part : parts) {
    const float* from = copied;
    if (is_copied_) {
      copy(image, part, copied);
      copied += windows_.covered(0, part.bottom - part.top) * row_distance_;
    } else {
      from = image +
             ((part.image * windows_.image[0] + part.top * windows_.stride[0] - windows_.padding[0]) * windows_.image[1] +
              part.left * windows_.stride[1] - windows_.padding[1]) *
                 windows_.channels;
    }
    for (int64_t y = part.top; y < part.bottom; ++y) {
      const float* row = from + (y - part.top) * windows_.stride[0] * row_distance_;
      for (int64_t x = part.left; x < part.right; ++x) {
        *rows++ = row;
        row += windows_.stride[1] * pixel_distance_;
      }
    }
  }
}

void ImageRows::copy(const float* image, const Part& part, float* to) const {
  const int64_t first_row = part.top * windows_.stride[0] - windows_.padding[0];
  const int64_t rows = windows_.covered(0, part.bottom - part.top);
  const int64_t first = part.left * windows_.stride[1] - windows_.padding[1];
  const int64_t last = first + windows_.covered(1, part.right - part.left);
  image += part.image * windows_.channels * windows_.pixels();
  const bool has_border = first != 0 || last != windows_.image[1] || first_row < 0 || first_row + rows > windows_.image[0];
  const bool has_whole_rows = part.right - part.left == windows_.count[1];
  if (!windows_.is_channels_last && windows_.groups == 1 && !has_border && has_whole_rows) {
    // Whole rows are one.
    transpose(image + first_row * windows_.image[1], windows_.pixels(), windows_.channels, rows * windows_.image[1], to,
              windows_.channels);
    return;
  }
  for (int64_t row = first_row; row < first_row + rows; ++row, to += row_distance_) {
    copy_row(image, row, first, last, to);
  }
}

void ImageRows::copy_row(const float* image, int64_t row, int64_t first, int64_t last, float* to) const {
  const bool is_within = row >= 0 && row < windows_.image[0];
  const int64_t begin = is_within ? std::clamp<int64_t>(0, first, last) : last;
  const int64_t end = is_within ? std::clamp<int64_t>(windows_.image[1], begin, last) : last;
  for (int64_t group = 0; group < windows_.groups; ++group, to += group_distance_) {
    std::fill_n(to, (begin - first) * pixel_distance_, 0.0F);
    if (begin < end) {
      copy_pixels(image, row, begin, end, group * pixel_distance_, to + (begin - first) * pixel_distance_);
    }
    std::fill_n(to + (end - first) * pixel_distance_, (last - end) * pixel_distance_, 0.0F);
  }
}

// Copies the channels of a group, of which `channel` is the first.
void ImageRows::copy_pixels(const float* image, int64_t row, int64_t first, int64_t last, int64_t channel, float* to) const {
  const int64_t pixel = row * windows_.image[1] + first;
  if (!windows_.is_channels_last) {
    transpose(image + channel * windows_.pixels() + pixel, windows_.pixels(), pixel_distance_, last - first, to,
              pixel_distance_);
  } else if (windows_.groups == 1) {
    std::copy_n(image + pixel * windows_.channels, (last - first) * windows_.channels, to);
  } else {
    const float* from = image + pixel * windows_.channels + channel;
    for (int64_t x = first; x < last; ++x, from += windows_.channels, to += pixel_distance_) {
      std::copy_n(from, pixel_distance_, to);
    }
  }
}

}  // namespace sconce
