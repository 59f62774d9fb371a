// The tiles with vectors of 4 elements, which every processor has, or computes by other instructions.
#include "kernels/loops/tiles.h"

namespace sconce {
namespace {

constexpr int kLanes = 4;
constexpr int kRegisters = 16;
#include "kernels/loops/vectors_code.h"

#include "kernels/loops/tiles_code.h"

}  // namespace

extern const TileKernels kTilesAny;
constinit const TileKernels kTilesAny = make_tile_kernels();

}  // namespace sconce
