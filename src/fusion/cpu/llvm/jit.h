// The CPU code generator: LLVM's code generation at O2 for the processor it runs on, linked into the process by ORC.
#pragma once

#include "fusion/program/kernel_code.h"

namespace sconce {

// Returns the generator of this process, made at the first call and never destroyed: kernels may be freed at exit. Refuses
// when LLVM has no support for this machine.
const Expected<KernelCompiler*>& jit();

}  // namespace sconce
