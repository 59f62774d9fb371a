// A compiled kernel as text, for people.
#pragma once

#include "fusion/cpu/kernel_cache.h"

#include <string>
#include <vector>

namespace sconce {

struct KernelListing {
  std::vector<std::string> groups;  // that the kernel computes, as "mul add sigmoid"
  size_t lanes = 0;
  double seconds = 0;  // that it took to make the kernel
  std::string program;
  std::string llvm_ir;
  std::string assembly;
  std::string refusal;  // why there is no assembly
};

KernelListing listing_of(const CachedKernel& kernel);

}  // namespace sconce
