// The compilers of node groups: each makes kernels for one device.
#pragma once

#include "plan/prepared/group.h"

#include <memory>

namespace sconce {

class KernelBackend;

// The first compiler compiles in the background, the second before the first run.
const GroupCompiler& background_kernels();
const GroupCompiler& blocking_kernels();

// Makes kernels that the back end compiles and runs. Operands must lie where its device reads them.
std::unique_ptr<GroupCompiler> make_kernels(std::shared_ptr<const KernelBackend> backend);

// Makes kernels that compute `lanes` elements at a time, and compiles them before the first run. The processor must have
// such vectors (kernel_lanes). Makes a kernel also where the operator itself is faster.
std::unique_ptr<GroupCompiler> make_blocking_kernels(size_t lanes);

}  // namespace sconce
