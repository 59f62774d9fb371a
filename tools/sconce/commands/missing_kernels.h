// Tells of a code generator for compiled kernels (libsconce_llvm.so) that is missing.
#pragma once

#include <sconce/options.h>

namespace sconce::cli {

// If a model with these options would have compiled kernels for the CPU, loads the code generator, which logs a warning
// where there is none.
void warn_of_missing_kernels(const Options& options);

}  // namespace sconce::cli
