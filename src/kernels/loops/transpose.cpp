#include "kernels/loops/transpose.h"

#include <algorithm>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace sconce {
namespace {

constexpr int64_t kBlock = 32;  // a block of either matrix fits into the first level of the cache
constexpr int64_t kTile = 4;

void transpose_tile(const float* in, int64_t in_distance, float* out, int64_t out_distance) {
#ifdef __SSE__
  __m128 a = _mm_loadu_ps(in);
  __m128 b = _mm_loadu_ps(in + in_distance);
  __m128 c = _mm_loadu_ps(in + 2 * in_distance);
  __m128 d = _mm_loadu_ps(in + 3 * in_distance);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(out, a);
  _mm_storeu_ps(out + out_distance, b);
  _mm_storeu_ps(out + 2 * out_distance, c);
  _mm_storeu_ps(out + 3 * out_distance, d);
#else
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t j = 0; j < kTile; ++j) {
      out[j * out_distance + i] = in[i * in_distance + j];
    }
  }
#endif
}

}  // namespace

void transpose(const float* in, int64_t in_distance, int64_t rows, int64_t columns, float* out, int64_t out_distance) {
  for (int64_t first_row = 0; first_row < rows; first_row += kBlock) {
    const int64_t end_row = std::min(first_row + kBlock, rows);
    const int64_t tiled_row = first_row + (end_row - first_row) / kTile * kTile;
    for (int64_t first = 0; first < columns; first += kBlock) {
      const int64_t end = std::min(first + kBlock, columns);
      const int64_t tiled = first + (end - first) / kTile * kTile;
      for (int64_t j = first; j < tiled; j += kTile) {
        for (int64_t i = first_row; i < tiled_row; i += kTile) {
          transpose_tile(in + i * in_distance + j, in_distance, out + j * out_distance + i, out_distance);
        }
      }
      for (int64_t i = first_row; i < end_row; ++i) {
        for (int64_t j = i < tiled_row ? tiled : first; j < end; ++j) {
          out[j * out_distance + i] = in[i * in_distance + j];
        }
      }
    }
  }
}

}  // namespace sconce
