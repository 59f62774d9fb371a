// Compiles kernels for the CPU. The code generator (libsconce_llvm, which links LLVM) is loaded when the first kernel is
// compiled, so programs that compile none do not pay for it.
#pragma once

#include "base/expected.h"
#include "fusion/program/kernel_code.h"

#include <memory>
#include <string>

namespace sconce {

// Refuses text that does not compile, with LLVM's words, and everything where the code generator cannot be loaded.
// Thread-safe.
Expected<std::shared_ptr<const KernelCode>> compile_cpu_kernel(const KernelText& kernel);

// The code generator itself; loads it. If it cannot be loaded, the first call logs a warning.
Expected<KernelCompiler*> cpu_kernel_compiler();

// Lets the pages of the code generator leave the process once no compile waits: they are more than 20 MiB, which most
// programs need for their first calls alone. The next compile brings back what it runs.
void page_out_compiler_later();

// Returns why there is no code generator, as far as that is known without loading it: its file is missing, or it could not
// be loaded before. Empty if nothing is known.
std::string why_no_kernel_compiler();

}  // namespace sconce
