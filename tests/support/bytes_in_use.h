// What the heap of this process holds.
#pragma once

#include <malloc.h>

namespace sconce::testing {

inline constexpr double kMiB = 1 << 20;

// Returns the bytes of blocks that are allocated and not freed, by all threads.
inline double bytes_in_use() {
  const auto memory = mallinfo2();
  return static_cast<double>(memory.uordblks + memory.hblkhd);
}

}  // namespace sconce::testing
