// Tells which programs LibTorch's operators compute faster, one by one, than a kernel.
#pragma once

#include "fusion/iteration.h"
#include "fusion/kernel_program.h"

#include <cstddef>

namespace sconce {

bool is_faster_by_libtorch(const KernelProgram& program, const Iteration& iteration, size_t lanes);

}  // namespace sconce
