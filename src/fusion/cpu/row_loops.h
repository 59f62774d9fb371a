// The loops of kernels whose lanes take neighbors in a row, or one element each of rows that lie side by side.
#pragma once

#include "fusion/program/kernel_program.h"

#include <cstddef>
#include <string>

namespace sconce {

// Returns the module of a program with LoopOrder::kColumns.
std::string column_loops_text(const KernelProgram& program, size_t lanes);

// Returns the module of a program with LoopOrder::kRows or kSegments.
std::string row_loops_text(const KernelProgram& program, size_t lanes);

}  // namespace sconce
