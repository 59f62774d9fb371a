// Sets of inputs or outputs that a value depends on or leads to, as bits.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

namespace sconce {

using Dependence = std::vector<bool>;

// Adds the bits of `from`, which has the length of `into`.
inline void merge(Dependence& into, const Dependence& from) {
  std::transform(into.begin(), into.end(), from.begin(), into.begin(), std::logical_or<>());
}

inline bool any(const Dependence& bits) { return std::ranges::find(bits, true) != bits.end(); }

}  // namespace sconce
