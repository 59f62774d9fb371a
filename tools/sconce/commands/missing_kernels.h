// Tells of a code generator for compiled kernels (libsconce_llvm.so) that is missing.
#pragma once

#include <sconce/options.h>

#include <string>

namespace sconce::cli {

// Returns why no kernel can be compiled for the CPU; empty if one can. Loads the code generator, whose own warning it mutes.
std::string why_no_cpu_kernels();

// Prints one warning if a model with these options would have compiled kernels for the CPU, and there can be none because
// the code generator cannot be loaded.
void warn_of_missing_kernels(const Options& options);

}  // namespace sconce::cli
