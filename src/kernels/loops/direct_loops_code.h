// The code of the direct loops; vectors_code.h comes first.
//
// All loops keep the results of some neighboring pixels in registers, and load each weight once for them.

SCONCE_INLINE bool is_within(int64_t index, int64_t size) { return index >= 0 && index < size; }
// Returns the first element of a step of `step` elements from `first` on; the last step ends at `end`.
SCONCE_INLINE int64_t begin_of_step(int64_t first, int64_t step, int64_t end) {
  return first + step <= end ? first : end - step;
}

// A row of the result, and the rows of the kernel that meet the image there.
struct RowOfResult {
  int64_t image;
  int64_t top;  // of the kernel, in rows of the image
  int64_t first;
  int64_t last;

  RowOfResult(const DirectLoops& loops, int64_t row)
      : image(row / loops.out_height), top(row % loops.out_height * loops.stride_height - loops.padding_height) {
    const int64_t below = loops.height - top;
    first = top >= 0 ? 0 : -top < loops.kernel_height ? -top : loops.kernel_height;
    last = below > loops.kernel_height ? loops.kernel_height : below > first ? below : first;
  }
};

// Some neighboring channels.
struct ChannelRange {
  int64_t first;
  int64_t last;
};

// Computes kPixels neighbors for some channels. `column`: of the image, where the kernel begins. kIsAtBorder: some columns
// are not in the image.
template <int kWidth, int kStride, int kPixels, bool kIsAtBorder>
SCONCE_INLINE void depthwise_pixels(const DirectLoops& loops, const RowOfResult& row, const ChannelRange& range,
                                    int64_t column, float* out) {
  const int64_t channels = loops.channels_out;
  const float* image =
      loops.image + row.image * loops.image_distance + (row.top + row.first) * loops.row_distance + column * channels;
  const float* weights = loops.weights + row.first * kWidth * channels;
  for (int64_t step = range.first; step < range.last; step += kLanes) {
    const int64_t channel = begin_of_step(step, kLanes, channels);
    const Vector bias = loops.bias != nullptr ? load(loops.bias + channel) : Vector{};
    Vector sums[kPixels];
#pragma GCC unroll 8
    for (int pixel = 0; pixel < kPixels; ++pixel) {
      sums[pixel] = bias;
    }
    const float* in = image + channel;
    const float* weight = weights + channel;
    for (int64_t y = row.first; y < row.last; ++y) {
      Vector weights_of_row[kWidth];
#pragma GCC unroll 8
      for (int x = 0; x < kWidth; ++x) {
        weights_of_row[x] = load(weight + x * channels);
      }
#pragma GCC unroll 32
      for (int i = 0; i < (kPixels - 1) * kStride + kWidth; ++i) {
        const Vector value = !kIsAtBorder || is_within(column + i, loops.width) ? load(in + i * channels) : Vector{};
#pragma GCC unroll 8
        for (int pixel = 0; pixel < kPixels; ++pixel) {
          const int x = i - pixel * kStride;
          if (x >= 0 && x < kWidth) {
            sums[pixel] += value * weights_of_row[x];
          }
        }
      }
      in += loops.row_distance;
      weight += kWidth * channels;
    }
#pragma GCC unroll 8
    for (int pixel = 0; pixel < kPixels; ++pixel) {
      store(out + pixel * channels + channel, clamp(sums[pixel], loops.least, loops.most));
    }
  }
}

// Returns for how many channels the rows of the image that meet in a row of the result stay in the first level of the cache.
// All, if that were few: then neighbors in memory are read one after the other.
SCONCE_INLINE int64_t channels_together(const DirectLoops& loops) {
  constexpr int64_t kElements = 12 * 1024;
  constexpr int64_t kFewVectors = 4;
  const int64_t vectors = kElements / (loops.kernel_height * loops.width * kLanes);
  return vectors < kFewVectors || loops.stride_height > 1 ? loops.channels_out : vectors * kLanes;
}

template <int kWidth, int kStride, int kPixels>
void depthwise_rows(const DirectLoops& loops, int64_t first, int64_t last) {
  const int64_t together = channels_together(loops);
  for (int64_t channel = 0; channel < loops.channels_out; channel += together) {
    const int64_t end = channel + together;
    const ChannelRange range = {channel, end < loops.channels_out ? end : loops.channels_out};
    for (int64_t y = first; y < last; ++y) {
      const RowOfResult row(loops, y);
      for (int64_t step = 0; step < loops.out_width; step += kPixels) {
        const int64_t pixel = begin_of_step(step, kPixels, loops.out_width);
        const int64_t column = pixel * kStride - loops.padding_width;
        float* out = loops.out + (y * loops.out_width + pixel) * loops.channels_out;
        if (column < 0 || column + (kPixels - 1) * kStride + kWidth > loops.width) {
          depthwise_pixels<kWidth, kStride, kPixels, true>(loops, row, range, column, out);
        } else {
          depthwise_pixels<kWidth, kStride, kPixels, false>(loops, row, range, column, out);
        }
      }
    }
  }
}

// Computes kVectors vectors of neighbors, whose kernels lie in the image.
template <int kVectors>
SCONCE_INLINE void pixels_of_line(const LineOfConvolution& line, int64_t column) {
  Vector sums[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = Vector{} + line.bias;
  }
  const float* in = line.image + column - line.padding;
  for (int64_t k = 0; k < line.kernel; ++k, in += line.dilation) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[v] += load(in + v * kLanes) * line.weights[k];
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    store(line.out + column + v * kLanes, clamp(sums[v], line.least, line.most));
  }
}

// Computes pixels one by one, whose kernels may reach beyond the image.
SCONCE_INLINE void pixels_at_border(const LineOfConvolution& line, int64_t first, int64_t last) {
  for (int64_t column = first; column < last; ++column) {
    float sum = line.bias;
    for (int64_t k = 0; k < line.kernel; ++k) {
      const int64_t i = column - line.padding + k * line.dilation;
      sum += is_within(i, line.width) ? line.image[i] * line.weights[k] : 0;
    }
    sum = sum < line.least ? line.least : sum;
    line.out[column] = sum > line.most ? line.most : sum;
  }
}

void depthwise_line(const LineOfConvolution& line) {
  constexpr int kVectors = 4;
  const int64_t end = line.width + line.padding - (line.kernel - 1) * line.dilation;  // of the pixels that see no padding
  const int64_t last = end < line.out_width ? end : line.out_width;
  int64_t column = line.padding < line.out_width ? line.padding : line.out_width;
  if (last - column < kLanes) {
    pixels_at_border(line, 0, line.out_width);
    return;
  }
  pixels_at_border(line, 0, column);
  for (; column + kVectors * kLanes <= last; column += kVectors * kLanes) {
    pixels_of_line<kVectors>(line, column);
  }
  for (; column < last; column += kLanes) {
    pixels_of_line<1>(line, begin_of_step(column, kLanes, last));
  }
  pixels_at_border(line, last, line.out_width);
}

// Computes kPixels neighbors for kVectors vectors of output channels, of which `channel` is the first.
template <int kVectors, int kPixels, bool kIsAtBorder>
SCONCE_INLINE void few_channels_pixels(const DirectLoops& loops, const RowOfResult& row, int64_t column, int64_t channel,
                                       float* out) {
  Vector sums[kPixels][kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const Vector bias = loops.bias != nullptr ? load(loops.bias + channel + v * kLanes) : Vector{};
#pragma GCC unroll 8
    for (int pixel = 0; pixel < kPixels; ++pixel) {
      sums[pixel][v] = bias;
    }
  }
  const int64_t next_pixel = loops.stride_width * loops.pixel_distance;
  const float* image =
      loops.image + row.image * loops.image_distance + row.top * loops.row_distance + column * loops.pixel_distance;
  for (int64_t c = 0; c < loops.channels_in; ++c) {
    for (int64_t y = row.first; y < row.last; ++y) {
      const float* in = image + c * loops.channel_distance + y * loops.row_distance;
      const float* weight =
          loops.weights + (c * loops.kernel_height + y) * loops.kernel_width * loops.channels_out + channel;
      for (int64_t x = 0; x < loops.kernel_width; ++x) {
        Vector weights[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          weights[v] = load(weight + v * kLanes);
        }
#pragma GCC unroll 8
        for (int pixel = 0; pixel < kPixels; ++pixel) {
          const bool is_inside = !kIsAtBorder || is_within(column + x + pixel * loops.stride_width, loops.width);
          const float value = is_inside ? in[pixel * next_pixel] : 0.0F;
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) {
            sums[pixel][v] += value * weights[v];
          }
        }
        in += loops.pixel_distance;
        weight += loops.channels_out;
      }
    }
  }
#pragma GCC unroll 8
  for (int pixel = 0; pixel < kPixels; ++pixel) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      store(out + pixel * loops.channels_out + channel + v * kLanes, clamp(sums[pixel][v], loops.least, loops.most));
    }
  }
}

template <int kVectors, int kPixels>
void few_channels_rows(const DirectLoops& loops, int64_t first, int64_t last) {
  for (int64_t y = first; y < last; ++y) {
    const RowOfResult row(loops, y);
    for (int64_t channels = 0; channels < loops.channels_out; channels += kVectors * kLanes) {
      const int64_t channel = begin_of_step(channels, kVectors * kLanes, loops.channels_out);
      for (int64_t step = 0; step < loops.out_width; step += kPixels) {
        const int64_t pixel = begin_of_step(step, kPixels, loops.out_width);
        const int64_t column = pixel * loops.stride_width - loops.padding_width;
        float* out = loops.out + (y * loops.out_width + pixel) * loops.channels_out;
        if (column < 0 || column + (kPixels - 1) * loops.stride_width + loops.kernel_width > loops.width) {
          few_channels_pixels<kVectors, kPixels, true>(loops, row, column, channel, out);
        } else {
          few_channels_pixels<kVectors, kPixels, false>(loops, row, column, channel, out);
        }
      }
    }
  }
}

// Sums of so many elements are added to one another: a long sum rounds less in parts.
constexpr int64_t kPart = 64;

void mean_of_rows(const float* matrix, int64_t rows, int64_t columns, float* out) {
  for (int64_t row = 0; row < rows; ++row, matrix += columns) {
    Vector sum = {};
    int64_t column = 0;
    while (column + kLanes <= columns) {
      Vector part = {};
      for (int64_t i = 0; i < kPart && column + kLanes <= columns; ++i, column += kLanes) {
        part += load(matrix + column);
      }
      sum += part;
    }
    float total = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      total += sum[lane];
    }
    for (; column < columns; ++column) {
      total += matrix[column];
    }
    out[row] = total / static_cast<float>(columns);
  }
}

template <int kVectors>
SCONCE_INLINE void mean_of_some_columns(const float* matrix, int64_t rows, int64_t distance, float* out) {
  Vector sums[kVectors] = {};
  for (int64_t first = 0; first < rows; first += kPart) {
    Vector parts[kVectors] = {};
    for (int64_t row = first; row < rows && row < first + kPart; ++row) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        parts[v] += load(matrix + row * distance + v * kLanes);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[v] += parts[v];
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    store(out + v * kLanes, sums[v] / static_cast<float>(rows));
  }
}

void mean_of_columns(const float* matrix, int64_t rows, int64_t columns, int64_t distance, float* out) {
  constexpr int kVectors = 4;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= columns; column += kVectors * kLanes) {
    mean_of_some_columns<kVectors>(matrix + column, rows, distance, out + column);
  }
  for (; column < columns; column += kLanes) {
    const int64_t first = begin_of_step(column, kLanes, columns);
    mean_of_some_columns<1>(matrix + first, rows, distance, out + first);
  }
}

template <int kVectors>
SCONCE_INLINE void maximum_of_some_columns(const PixelWindow& window, const float* pixels, float* out) {
  Vector most[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    most[v] = Vector{} - __builtin_inff();
  }
  for (int64_t y = 0; y < window.rows; ++y) {
    for (int64_t x = 0; x < window.columns; ++x) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Vector value = load(pixels + y * window.row_distance + x * window.channels + v * kLanes);
        // A NaN is taken, and then stays: nothing is larger.
        most[v] = value > most[v] || value != value ? value : most[v];
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    store(out + v * kLanes, most[v]);
  }
}

void maximum_of_pixels(const PixelWindow& window, const float* pixels, float* out) {
  constexpr int kVectors = 4;
  int64_t channel = 0;
  for (; channel + kVectors * kLanes <= window.channels; channel += kVectors * kLanes) {
    maximum_of_some_columns<kVectors>(window, pixels + channel, out + channel);
  }
  for (; channel < window.channels; channel += kLanes) {
    const int64_t first = begin_of_step(channel, kLanes, window.channels);
    maximum_of_some_columns<1>(window, pixels + first, out + first);
  }
}

constexpr int kPixelsOfFewChannels = kLanes == 16 ? 8 : 6;  // with two vectors each, they fit into the registers

template <int kWidth>
constexpr DirectKernels::OfWidth kDepthwise = {
    {{depthwise_rows<kWidth, 1, 7>, depthwise_rows<kWidth, 1, 4>, depthwise_rows<kWidth, 1, 1>},
     {depthwise_rows<kWidth, 2, 7>, depthwise_rows<kWidth, 2, 4>, depthwise_rows<kWidth, 2, 1>}}};

constexpr DirectKernels kDirectKernels = {
    .lanes = kLanes,
    .depthwise = {kDepthwise<3>, kDepthwise<5>, kDepthwise<7>},
    .few_channels = {{few_channels_rows<1, kPixelsOfFewChannels>, few_channels_rows<1, 1>},
                     {few_channels_rows<2, kPixelsOfFewChannels>, few_channels_rows<2, 1>}},
    .pixels = kPixelsOfFewChannels,
    .depthwise_line = depthwise_line,
    .read_block = read_block,
    .write_block = write_block,
    .depthwise_sums = depthwise_sums,
    .block_maximum = block_maximum,
    .depthwise_products = depthwise_products,
    .add_pixels = add_pixels,
    .planes = kPlaneLoops,
    .row_norms = kRowNormLoops,
    .mean_of_rows = mean_of_rows,
    .mean_of_columns = mean_of_columns,
    .maximum_of_pixels = maximum_of_pixels,
};
