// The tiles with vectors of 16 elements. CMake compiles this file for processors that have them.
#ifdef __x86_64__
#include "kernels/loops/tiles.h"

namespace sconce {
namespace {

constexpr int kLanes = 16;
constexpr int kRegisters = 32;
#include "kernels/loops/vectors_code.h"

#include "kernels/loops/tiles_code.h"

}  // namespace

extern const TileKernels kTilesAvx512;
constinit const TileKernels kTilesAvx512 = make_tile_kernels();

}  // namespace sconce
#endif
