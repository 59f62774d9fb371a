// Division by a number that is known before a launch: a product and a shift in place of some twenty instructions.
#pragma once

#include "base/assert.h"

#include <bit>
#include <cstdint>

namespace sconce {

// a / divisor is the upper half of 2a * multiplier, shifted to the right: T. Granlund and P. Montgomery, "Division by
// Invariant Integers using Multiplication", 1994, theorem 4.2. With 0 <= a < 2^31 and 0 < divisor < 2^31, the multiplier
// fits 32 bits.
struct Reciprocal {
  uint32_t multiplier;
  uint32_t shift;
};

inline Reciprocal reciprocal_of(int64_t divisor) {
  SCONCE_ASSERT(divisor > 0 && divisor < (int64_t{1} << 31), "no reciprocal of ", divisor);
  const auto shift = static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(divisor) - 1));
  return {static_cast<uint32_t>((uint64_t{1} << (31 + shift)) / static_cast<uint64_t>(divisor) + 1), shift};
}

inline int64_t quotient(int64_t a, Reciprocal by) {
  return static_cast<int64_t>((static_cast<uint64_t>(2 * a) * by.multiplier >> 32) >> by.shift);
}

}  // namespace sconce
