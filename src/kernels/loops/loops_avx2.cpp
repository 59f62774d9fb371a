// The loops with vectors of 8 elements. CMake compiles this file for processors that have them.
#ifdef __x86_64__
#include "kernels/loops/vector_loops.h"

namespace sconce {
namespace {

constexpr int kLanes = 8;
constexpr int kRegisters = 16;
#include "kernels/loops/vectors_code.h"

#include "kernels/loops/depthwise_blocks_code.h"
#include "kernels/loops/plane_loops_code.h"

#include "kernels/loops/row_norms_code.h"

#include "kernels/loops/direct_loops_code.h"

#include "kernels/loops/bag_sums_code.h"
#include "kernels/loops/exponential_code.h"

#include "kernels/loops/recurrent_cells_code.h"
#include "kernels/loops/softmax_rows_code.h"
#include "kernels/loops/tiles_code.h"

}  // namespace

extern const VectorLoops kLoopsAvx2;
constinit const VectorLoops kLoopsAvx2 = {make_tile_kernels(), make_softmax_rows(), make_recurrent_cells(), make_bag_sums(),
                                          &kDirectKernels};

}  // namespace sconce
#endif
