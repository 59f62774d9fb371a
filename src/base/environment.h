// All environment variables that sconce reads, once per process. They are for observing and checking; settings that change
// results are in Options.
#pragma once

#include <string>

namespace sconce {

struct Environment {
  bool verify = false;  // SCONCE_VERIFY=1: run the verifier after every pass in release builds too
  // SCONCE_CHECK_SHELLS=1: check in release builds, too, that nothing outlives planned memory (rule R2)
  bool check_shells = false;
  std::string dump;  // SCONCE_DUMP: what to print to stderr while compiling, see dump.h
  // SCONCE_KERNEL_CACHE: the directory that keeps compiled kernels of CPUs and GPUs, instead of ~/.cache/sconce/kernels;
  // "off": none
  std::string kernel_cache;
  // SCONCE_ACCELERATE=1, or options as JSON: libsconce_ops accelerates every module in its first call
  std::string accelerate;
  std::string nvrtc;  // SCONCE_NVRTC: the libnvrtc to compile CUDA kernels with, instead of the one beside LibTorch

  // Returns whether a defect of sconce ends a call that could go on without a plan.
  bool is_test() const { return verify || check_shells; }
};

const Environment& environment();

}  // namespace sconce
