#include "kernels/loops/tiles.h"

#include <ATen/Version.h>

#include <string>

namespace sconce {

extern const TileKernels kTilesAny;
#ifdef __x86_64__
extern const TileKernels kTilesAvx2;
extern const TileKernels kTilesAvx512;

const TileKernels* tile_kernels(int64_t lanes) {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f");
  return lanes == kTilesAny.lanes                    ? &kTilesAny
         : lanes == kTilesAvx2.lanes && has_avx2     ? &kTilesAvx2
         : lanes == kTilesAvx512.lanes && has_avx512 ? &kTilesAvx512
                                                     : nullptr;
}

const TileKernels& tile_kernels() {
  static const TileKernels& kernels = [&]() -> const TileKernels& {
    const std::string used = at::get_cpu_capability();
    const TileKernels* found = used == "AVX512" ? tile_kernels(kTilesAvx512.lanes) : nullptr;
    if (found == nullptr && used.starts_with("AVX")) {
      found = tile_kernels(kTilesAvx2.lanes);
    }
    return found != nullptr ? *found : kTilesAny;
  }();
  return kernels;
}
#else
const TileKernels* tile_kernels(int64_t lanes) { return lanes == kTilesAny.lanes ? &kTilesAny : nullptr; }
const TileKernels& tile_kernels() { return kTilesAny; }
#endif

}  // namespace sconce
