// The loops with vectors of 4 elements, which every processor has, or computes by other instructions.
#include "kernels/loops/vector_loops.h"

namespace sconce {
namespace {

// Not to be taken for the code of another file in the same unit of a unity build.
namespace loops_any {
constexpr int kLanes = 4;
constexpr int kRegisters = 16;
#include "kernels/loops/vectors_code.h"

#include "kernels/loops/bag_sums_code.h"
#include "kernels/loops/exponential_code.h"

#include "kernels/loops/recurrent_cells_code.h"
#include "kernels/loops/softmax_rows_code.h"
#include "kernels/loops/tiles_code.h"
}  // namespace loops_any

}  // namespace

extern const VectorLoops kLoopsAny;
constinit const VectorLoops kLoopsAny = {loops_any::make_tile_kernels(), loops_any::make_softmax_rows(),
                                         loops_any::make_recurrent_cells(), loops_any::make_bag_sums(), nullptr};

}  // namespace sconce
