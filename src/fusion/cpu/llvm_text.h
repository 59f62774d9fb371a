// Writes a kernel program as loops over vectors, and these as LLVM IR.
#pragma once

#include "fusion/program/loop_program.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace sconce {

// The compiled function.
//   operands   the inputs, then the outputs: the first element of the first row; then the buffers of the schedule, each
//              with room for a row (null for a buffer that an output serves as)
//   steps      per operand the bytes from one row to the next, then those from one element of a row to the next, then those
//              from one segment of a row to the next
//   numbers    the parameters: doubles for floating types, else int64s
// All rows have `segments` segments of `elements` elements; all counts are at least 1. One segment, where the program's
// order is LoopOrder::kRows.
using KernelFunction = void (*)(void* const* operands, const int64_t* steps, const void* numbers, int64_t rows,
                                int64_t elements, int64_t segments);
inline constexpr const char* kKernelFunctionName = "kernel";

// Returns the loops of a program, and the module's text that is printed of them. `lanes` is the number of elements that one
// pass through the loop computes (kernel_width.h). The elements that are left at the end of a row are computed under a mask,
// so that the place of an element does not change its bits. The words of the loops are rows, elements and segments, then
// the steps.
LoopProgram cpu_loops(const KernelProgram& program, size_t lanes);
std::string llvm_text(const KernelProgram& program, size_t lanes);

}  // namespace sconce
