// The tiles with vectors of 4 elements, which every processor has, or computes by other instructions.
#include "kernels/packed/tiles.h"

namespace sconce {
namespace {

constexpr int kLanes = 4;
constexpr int kRegisters = 16;
#include "kernels/packed/vectors_code.h"

#include "kernels/packed/tiles_code.h"

}  // namespace

extern const TileKernels kTilesAny;
constinit const TileKernels kTilesAny = make_tile_kernels();

}  // namespace sconce
