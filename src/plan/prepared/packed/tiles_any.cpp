// The tiles with vectors of 4 elements, which every processor has, or computes by other instructions.
#include "plan/prepared/packed/tiles.h"

namespace sconce {
namespace {

constexpr int kLanes = 4;
constexpr int kRegisters = 16;
#include "plan/prepared/packed/vectors_code.h"

#include "plan/prepared/packed/tiles_code.h"

}  // namespace

extern const TileKernels kTilesAny;
constinit const TileKernels kTilesAny = make_tile_kernels();

}  // namespace sconce
