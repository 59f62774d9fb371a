// Kernels of groups of nodes: from live operands to compiled code.
#pragma once

#include "plan/prepared/group.h"

#include <memory>

namespace sconce {

class NestBackend;

// A kernel is prepared for operands of given dtypes, sizes and strides: it writes a program for each shape among the
// results, and takes its code from the process-wide KernelCache. Sizes are no part of a program, so one code serves all that
// have the same structure. Until the code is compiled, the nodes run one by one.
//
// The first compiler compiles in the background, the second before the first run.
const GroupCompiler& background_kernels();
const GroupCompiler& blocking_kernels();

// Makes kernels that the back end compiles and runs. Operands must lie where its device reads them.
std::unique_ptr<GroupCompiler> make_kernels(std::unique_ptr<NestBackend> backend);

// Makes kernels that compute `lanes` elements at a time, and compiles them before the first run. The processor must have
// such vectors (kernel_lanes). Makes a kernel also where the operator itself is faster.
std::unique_ptr<GroupCompiler> make_blocking_kernels(size_t lanes);

}  // namespace sconce
