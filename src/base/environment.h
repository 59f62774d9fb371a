// The environment variables that sconce reads, all of them here and once per process. Settings that change what is
// computed are Options; these are for watching and checking.
#pragma once

#include <string>

namespace sconce {

struct Environment {
  bool verify = false;  // SCONCE_VERIFY=1: run the verifier after every pass in release builds too
  std::string dump;     // SCONCE_DUMP: what to print to stderr while compiling, see dump.h
  std::string nvrtc;    // SCONCE_NVRTC: the libnvrtc to compile CUDA kernels with, instead of the one beside LibTorch
};

const Environment& environment();

}  // namespace sconce
