// The tiles with vectors of 8 elements. CMake compiles this file for processors that have them.
#ifdef __x86_64__
#include "kernels/loops/tiles.h"

namespace sconce {
namespace {

constexpr int kLanes = 8;
constexpr int kRegisters = 16;
#include "kernels/loops/vectors_code.h"

#include "kernels/loops/tiles_code.h"

}  // namespace

extern const TileKernels kTilesAvx2;
constinit const TileKernels kTilesAvx2 = make_tile_kernels();

}  // namespace sconce
#endif
