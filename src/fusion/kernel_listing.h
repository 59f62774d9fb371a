// The compiled kernels of the process as text, for people.
#pragma once

#include <string>
#include <vector>

namespace sconce {

struct KernelListing {
  std::vector<std::string> groups;  // that the kernel computes, as "mul add sigmoid"
  size_t lanes = 0;
  std::string program;
  std::string llvm_ir;
  std::string assembly;
  std::string refusal;  // why there is no assembly
};

// Returns the kernels in the order in which they were asked for.
std::vector<KernelListing> list_kernels();

}  // namespace sconce
