// The two kinds of grids, and the values of elements that their threads keep from pass to pass.
#pragma once

#include "fusion/cuda/grid_program.h"
#include "fusion/program/kernel_program.h"
#include "fusion/program/schedule.h"

#include <cstdint>
#include <vector>

namespace sconce {

// Returns the instructions whose values more than one pass over a row reads: those of the schedule's buffers, and what is
// loaded, as numbers that can be computed with. Ascending.
std::vector<uint32_t> kept_values(const KernelProgram& program, const Schedule& schedule);

// Without reductions: each thread takes `vector` neighbors, then those that lie a whole grid further. What is left at the
// end is taken one by one, and everything where operands are not aligned.
GridProgram grid_of_elements(const KernelProgram& program, const GridForm& form);

// With reductions: `lanes` threads take a row, pass by pass (schedule.h). Of rows that lie side by side
// (LoopOrder::kColumns), neighboring threads take neighboring rows; else neighboring elements of one row.
GridProgram grid_of_rows(const KernelProgram& program, const GridForm& form);

}  // namespace sconce
