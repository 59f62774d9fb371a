// Loops that run on LibTorch's intra-op threads where a fork costs less than it gains.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

namespace sconce {

inline constexpr int64_t kMultiplicationsWorthAFork = 1 << 19;
inline constexpr int64_t kElementsWorthAFork = 1 << 15;  // read or written by a copy or a sum

// Calls function(begin, end) for parts of the items, each of which is so many multiplications.
template <typename Function>
void fork_by_multiplications(int64_t items, int64_t of_item, const Function& function) {
  at::parallel_for(0, items, kMultiplicationsWorthAFork / std::max<int64_t>(of_item, 1) + 1, function);
}

// Calls function(begin, end) for parts of the items, each of which reads or writes so many elements.
template <typename Function>
void fork_by_elements(int64_t items, int64_t of_item, const Function& function) {
  at::parallel_for(0, items, kElementsWorthAFork / std::max<int64_t>(of_item, 1) + 1, function);
}

}  // namespace sconce
