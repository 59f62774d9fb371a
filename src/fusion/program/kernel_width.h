// The vectors that kernels are written in.
#pragma once

#include <cstddef>
#include <string>

namespace sconce {

// Elements at a time, for the three kinds of processors that kernels are compiled for.
inline constexpr size_t kAvx512Lanes = 16;
inline constexpr size_t kAvx2Lanes = 8;
inline constexpr size_t kGenericLanes = 4;  // neither: no fused products and sums, and no special functions

// Returns the number of elements that kernels compute at a time in this process; 0 if there are no kernels. The vectors are
// those that LibTorch's own kernels use, so its variable ATEN_CPU_CAPABILITY chooses among what the processor has.
size_t kernel_lanes();
// Returns LLVM's name of the processors that have such vectors.
const char* processor_of(size_t lanes);
// Returns why there are no kernels; empty if there are.
std::string why_no_kernels();

}  // namespace sconce
