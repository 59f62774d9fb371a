#include "kernels/packed/image_rows.h"

#include "kernels/loops/transpose.h"

#include <c10/util/SmallVector.h>

#include <algorithm>

namespace sconce {

ImageRows::ImageRows(const ConvolutionForm& form)
    : form_(form),
      runs_are_rows_(form.dilation[1] == 1),
      is_copied_(!form.image_is_channels_last || form.has_padding() || (form.groups > 1 && form.kernel[1] > 1)) {
  const int64_t width = is_copied_ ? columns_read(form.size_out(1)) : form.image[1];
  const int64_t channels = form.channels_in / form.groups;
  row_distance_ = width * form.channels_in;
  pixel_distance_ = is_copied_ ? channels : form.channels_in;
  group_distance_ = is_copied_ ? width * channels : channels;
  // Copies of whole rows overlap least.
  constexpr int64_t kMaxTogether = 16 * 1024;
  const bool overlaps = is_copied_ && form.kernel[0] > 1 && form.size_out(0) > 1;
  unit_ = overlaps && row_distance_ <= kMaxTogether ? form.size_out(1) : 1;
}

int64_t ImageRows::elements() const { return std::max<int64_t>(1, form_.elements_in() / count()); }

std::vector<int64_t> ImageRows::offsets() const {
  std::vector<int64_t> offsets;
  for (int64_t group = 0; group < form_.groups; ++group) {
    for (int64_t y = 0; y < form_.kernel[0]; ++y) {
      for (int64_t x = 0; x < (runs_are_rows_ ? 1 : form_.kernel[1]); ++x) {
        offsets.push_back(group * group_distance_ + y * form_.dilation[0] * row_distance_ +
                          x * form_.dilation[1] * pixel_distance_);
      }
    }
  }
  return offsets;
}

// Returns the pixels from `first` on that lie in one image, and in one row unless `first` begins one.
ImageRows::Part ImageRows::part_at(int64_t first, int64_t last) const {
  const int64_t width = form_.size_out(1);
  const int64_t row = first / width;
  const int64_t image = row / form_.size_out(0);
  const int64_t top = row % form_.size_out(0);
  const int64_t left = first % width;
  last = std::min(last, (image + 1) * form_.pixels_out());
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
    rows_copied += rows_read(part.bottom - part.top);
  }
  if (is_copied_ && copies.size() < static_cast<size_t>(rows_copied * row_distance_)) {
    copies.resize(static_cast<size_t>(rows_copied * row_distance_));
  }
  float* copied = copies.data();
  for (const Part& part : parts) {
    const float* from = copied;
    if (is_copied_) {
      copy(image, part, copied);
      copied += rows_read(part.bottom - part.top) * row_distance_;
    } else {
      from = image +
             ((part.image * form_.image[0] + part.top * form_.stride[0]) * form_.image[1] + part.left * form_.stride[1]) *
                 form_.channels_in;
    }
    for (int64_t y = part.top; y < part.bottom; ++y) {
      const float* row = from + (y - part.top) * form_.stride[0] * row_distance_;
      for (int64_t x = part.left; x < part.right; ++x) {
        *rows++ = row;
        row += form_.stride[1] * pixel_distance_;
      }
    }
  }
}

void ImageRows::copy(const float* image, const Part& part, float* to) const {
  const int64_t first_row = part.top * form_.stride[0] - form_.padding[0];
  const int64_t rows = rows_read(part.bottom - part.top);
  const int64_t first = part.left * form_.stride[1] - form_.padding[1];
  const int64_t last = first + columns_read(part.right - part.left);
  image += part.image * form_.channels_in * form_.pixels_in();
  const bool has_border = first != 0 || last != form_.image[1] || first_row < 0 || first_row + rows > form_.image[0];
  const bool has_whole_rows = part.right - part.left == form_.size_out(1);
  if (!form_.image_is_channels_last && form_.groups == 1 && !has_border && has_whole_rows) {
    // Whole rows are one.
    transpose(image + first_row * form_.image[1], form_.pixels_in(), form_.channels_in, rows * form_.image[1], to,
              form_.channels_in);
    return;
  }
  for (int64_t row = first_row; row < first_row + rows; ++row, to += row_distance_) {
    copy_row(image, row, first, last, to);
  }
}

void ImageRows::copy_row(const float* image, int64_t row, int64_t first, int64_t last, float* to) const {
  const bool is_within = row >= 0 && row < form_.image[0];
  const int64_t begin = is_within ? std::clamp<int64_t>(0, first, last) : last;
  const int64_t end = is_within ? std::clamp<int64_t>(form_.image[1], begin, last) : last;
  for (int64_t group = 0; group < form_.groups; ++group, to += group_distance_) {
    std::fill_n(to, (begin - first) * pixel_distance_, 0.0F);
    if (begin < end) {
      copy_pixels(image, row, begin, end, group * pixel_distance_, to + (begin - first) * pixel_distance_);
    }
    std::fill_n(to + (end - first) * pixel_distance_, (last - end) * pixel_distance_, 0.0F);
  }
}

// Copies the channels of a group, of which `channel` is the first.
void ImageRows::copy_pixels(const float* image, int64_t row, int64_t first, int64_t last, int64_t channel, float* to) const {
  const int64_t pixel = row * form_.image[1] + first;
  if (!form_.image_is_channels_last) {
    transpose(image + channel * form_.pixels_in() + pixel, form_.pixels_in(), pixel_distance_, last - first, to,
              pixel_distance_);
  } else if (form_.groups == 1) {
    std::copy_n(image + pixel * form_.channels_in, (last - first) * form_.channels_in, to);
  } else {
    const float* from = image + pixel * form_.channels_in + channel;
    for (int64_t x = first; x < last; ++x, from += form_.channels_in, to += pixel_distance_) {
      std::copy_n(from, pixel_distance_, to);
    }
  }
}

}  // namespace sconce
