// Tells which programs LibTorch's operators compute faster, one by one, than a kernel.
#pragma once

#include "fusion/program/iteration.h"
#include "fusion/program/kernel_program.h"

#include <cstddef>

namespace sconce {

// Returns whether the program does what LibTorch does faster to long tensors: it copies a tensor as a piece of memory, and
// computes one such function of it by MKL's vector library.
bool is_copy_or_function(const KernelProgram& program);

// Returns whether the program calls a function such as exp for each element.
bool calls_library(const KernelProgram& program);

bool is_faster_by_libtorch(const KernelProgram& program, const Iteration& iteration, size_t lanes);

}  // namespace sconce
