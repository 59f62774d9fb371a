// The two kinds of grids.
#pragma once

#include "fusion/cuda/grid_program.h"

namespace sconce {

// Without reductions: each thread takes `vector` neighbors, then those that lie a whole grid further. What is left at the
// end is taken one by one, and everything where operands are not aligned.
GridProgram grid_of_elements(const KernelProgram& program, const GridForm& form);

// With reductions: `lanes` threads take a row, pass by pass (schedule.h). Of rows that lie side by side
// (LoopOrder::kColumns), neighboring threads take neighboring rows; else neighboring elements of one row.
GridProgram grid_of_rows(const KernelProgram& program, const GridForm& form);

}  // namespace sconce
