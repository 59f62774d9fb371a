// Counts the bytes of all CPU tensors and arenas of the process.
#pragma once

#include <sconce/explanation.h>

#include <cstddef>

namespace sconce::cli {

// Counts from the first call on. There is one counter; any thread may allocate.
class CountedMemory {
 public:
  static void begin();
  static size_t living_bytes();  // of what was allocated since `begin`
  static size_t peak_bytes();    // the most at one time since `restart_peak`
  static void restart_peak();
};

// The arenas that an executor's plans keep, those of differentiable subgraphs included.
struct Arenas {
  size_t bytes = 0;
  size_t lower_bound = 0;  // the least bytes that any layouts of the plans need
};
Arenas arenas_of(const Explanation& explanation);

}  // namespace sconce::cli
