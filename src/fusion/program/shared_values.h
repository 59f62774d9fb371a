// SharedValues: what all rows of a kernel compute alike is computed once, before them.
//
//   x * (1 / sqrt(v + 1e-5)) + b, where v and b have one element for each column
//     before the rows:  s = 1 / sqrt(v + 1e-5)
//     of each row:      x * s + b
#pragma once

#include "fusion/program/iteration.h"
#include "fusion/program/kernel_program.h"

#include <optional>
#include <vector>

namespace sconce {

// One program as two. `inputs`: of each, in its order, the inputs of the whole program.
struct SharedValues {
  KernelProgram before;  // computes one row: its outputs are the values
  std::vector<size_t> inputs_before;
  KernelProgram rows;  // has the values as its last inputs
  std::vector<size_t> inputs_of_rows;
};

// Returns, by input, whether all rows read the same elements; nothing if the loops have too few rows to gain.
std::vector<bool> inputs_of_all_rows(const KernelProgram& program, const Iteration& iteration);

// Returns nothing if what is computed of these inputs alone costs less than to read it.
std::optional<SharedValues> split_shared_values(const KernelProgram& program, const std::vector<bool>& is_of_all_rows);

// Return the loops of both, for those of the whole program.
Iteration iteration_before(const SharedValues& split, const Iteration& whole);
Iteration iteration_of_rows(const SharedValues& split, const Iteration& whole);

}  // namespace sconce
