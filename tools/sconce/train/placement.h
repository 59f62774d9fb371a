// The processes that train together, and the random numbers of their calls.
#pragma once

#include <cstdint>
#include <utility>

namespace sconce::cli {

// Which of them this process is.
struct Placement {
  int64_t rank = 0;   // from 0 to world - 1
  int64_t world = 1;  // processes

  // This one writes the files and prints.
  bool is_first() const { return rank == 0; }
  // Returns this process's part, [begin, end), of `count` things that are divided into contiguous parts.
  std::pair<int64_t, int64_t> part_of(int64_t count) const { return {count * rank / world, count * (rank + 1) / world}; }
};

// Seeds LibTorch's generators for one call of the model. What a call draws depends on these numbers alone, so a training
// goes on with the same draws from any checkpoint. `call`: its number in the step, over all processes.
void seed_draws(uint64_t seed, uint64_t step, uint64_t call);

}  // namespace sconce::cli
