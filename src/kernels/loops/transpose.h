// Channels-last and back.
#pragma once

#include <cstdint>

namespace sconce {

// out (columns x rows) = the transpose of in (rows x columns). Distances: in elements, from one row to the next.
void transpose(const float* in, int64_t in_distance, int64_t rows, int64_t columns, float* out, int64_t out_distance);

}  // namespace sconce
