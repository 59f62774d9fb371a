// cpu_generator: LibTorch's generator of random numbers on the CPU.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

namespace sconce {

// Never destroyed: calls may run while the process ends.
inline at::Generator& cpu_generator() {
  static auto& shared = *new at::Generator(at::detail::getDefaultCPUGenerator());
  return shared;
}

}  // namespace sconce
