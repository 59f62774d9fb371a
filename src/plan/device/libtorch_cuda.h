// Rule R9: LibTorch's CUDA half must be in the process before ATen first looks for it.
#pragma once

#include "base/expected.h"

#include <string>

namespace sconce {

// ATen checks once, at the first call that needs it (`manual_seed`, a tensor on a GPU), whether the CUDA library is loaded.
// If it is not, ATen keeps a stub for the life of the process. sconce links LibTorch's CPU library only, which saves a third
// of a second and 350 MB at the start. So code that may need a GPU calls this first, through `make_available` (device.h).
//
// Succeeds when ATen has its CUDA half now. Refuses in one sentence: no driver on this machine, a LibTorch without CUDA, or
// too late. Safe to call again and from any thread. Starts no GPU.
Expected<void> load_cuda_early();

// The same without asking for a driver first: for building for machines that have one.
Expected<void> load_libtorch_cuda();

// The folder of the LibTorch that this process runs with; empty when it is linked in statically.
std::string libtorch_directory();

}  // namespace sconce
