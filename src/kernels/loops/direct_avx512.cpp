// The direct loops with vectors of 16 elements. CMake compiles this file for processors that have them.
#ifdef __x86_64__
#include "kernels/loops/direct_loops.h"

namespace sconce {
namespace {

constexpr int kLanes = 16;
#include "kernels/loops/vectors_code.h"

#include "kernels/loops/depthwise_blocks_code.h"
#include "kernels/loops/plane_loops_code.h"

#include "kernels/loops/row_norms_code.h"

#include "kernels/loops/direct_loops_code.h"

}  // namespace

extern const DirectKernels kDirectAvx512;
const DirectKernels kDirectAvx512 = kDirectKernels;

}  // namespace sconce
#endif
