#include "fusion/program/kernel_width.h"

#include "base/assert.h"

#include <ATen/Version.h>

namespace sconce {

// Whether this build of sconce has the code generator, libsconce_llvm (CMake option SCONCE_LLVM).
extern const bool kHasCodeGenerator;

namespace {

size_t lanes_of_process() {
#ifdef __x86_64__
  const std::string used = at::get_cpu_capability();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq");
  return used == "AVX512" && has_avx512 ? kAvx512Lanes : used.starts_with("AVX") && has_avx2 ? kAvx2Lanes : kGenericLanes;
#else
  return 0;
#endif
}

}  // namespace

size_t kernel_lanes() {
  static const size_t lanes = kHasCodeGenerator ? lanes_of_process() : 0;
  return lanes;
}

const char* processor_of(size_t lanes) {
  switch (lanes) {
    case kAvx512Lanes: return "x86-64-v4";
    case kAvx2Lanes: return "x86-64-v3";
    default: SCONCE_ASSERT(lanes == kGenericLanes, lanes); return "x86-64";
  }
}

std::string why_no_kernels() {
  return !kHasCodeGenerator    ? "this build of sconce has no code generator; build it with the CMake option SCONCE_LLVM=ON"
         : kernel_lanes() == 0 ? "the processor is no x86-64"
                               : "";
}

}  // namespace sconce
