// Large blocks of memory on the CPU. Blocks that are freed are kept for a while, and given out again.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

namespace sconce {

// Returns a block of at least `bytes` bytes. Its elements are not initialized. Pages that come fresh from the system cost
// more time than a pointwise operator takes for them, so the process keeps blocks that are freed, at most kMaxBytesKept.
// All blocks, used and kept, have at most twice as many bytes as were in use at one time lately, in the last kFreesCounted
// to 2 * kFreesCounted frees. So a run of one size finds all its blocks, and runs of many sizes do not add up.
//
// The block freed last that fits, of at most twice the size, is given out first: it is in the caches of the processor. If
// none fits and there is no room for a new one, a larger one is.
//
// Serves any thread. Throws what LibTorch's allocator throws.
c10::DataPtr allocate_large(size_t bytes);

inline constexpr size_t kMaxBytesKept = size_t{128} << 20;
inline constexpr uint64_t kFreesCounted = 2048;  // a few runs of a large model free as many

// Returns how many bytes are kept, and frees them. A plan that had large blocks does so when it is destroyed.
size_t free_kept_blocks();

}  // namespace sconce
