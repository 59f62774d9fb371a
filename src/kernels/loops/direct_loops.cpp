#include "kernels/loops/direct_loops.h"

#include <ATen/Version.h>

#include <string>

namespace sconce {

#ifdef __x86_64__
extern const DirectKernels kDirectAvx2;
extern const DirectKernels kDirectAvx512;

const DirectKernels* direct_kernels(int64_t lanes) {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f");
  return lanes == kDirectAvx512.lanes && has_avx512 ? &kDirectAvx512
         : lanes == kDirectAvx2.lanes && has_avx2   ? &kDirectAvx2
                                                    : nullptr;
}

const DirectKernels* direct_kernels() {
  static const DirectKernels* const kernels = [] {
    const std::string used = at::get_cpu_capability();
    const DirectKernels* widest = used == "AVX512" ? direct_kernels(kDirectAvx512.lanes) : nullptr;
    return widest != nullptr || !used.starts_with("AVX") ? widest : direct_kernels(kDirectAvx2.lanes);
  }();
  return kernels;
}
#else
const DirectKernels* direct_kernels(int64_t /*lanes*/) { return nullptr; }
const DirectKernels* direct_kernels() { return nullptr; }
#endif

}  // namespace sconce
