// Counts the bytes of all CPU tensors and arenas of the process.
#pragma once

#include <cstddef>

namespace sconce::testing {

// Counts from the first call on. There is one counter; any thread may allocate.
class CountedMemory {
 public:
  static void begin();
  static size_t living_bytes();  // of what was allocated since `begin`
  static size_t peak_bytes();    // the most at one time since `restart_peak`
  static void restart_peak();
};

}  // namespace sconce::testing
