// Channels-last and back.
#pragma once

#include <cstdint>

namespace sconce {

// out (columns x rows) = the transpose of in (rows x columns), both dense.
void transpose(const float* in, int64_t rows, int64_t columns, float* out);

}  // namespace sconce
