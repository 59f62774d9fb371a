#include "fusion/cpu/kernel_listing.h"

#include "fusion/cpu/cpu_kernels.h"
#include "fusion/program/kernel_width.h"

namespace sconce {

KernelListing listing_of(const CachedKernel& kernel) {
  KernelListing listing{.groups = kernel.groups(),
                        .lanes = kernel.lanes(),
                        .seconds = kernel.seconds(),
                        .program = kernel.program().text(),
                        .llvm_ir = llvm_text(kernel.program(), kernel.lanes())};
  const auto compiler = cpu_kernel_compiler();
  const auto assembly =
      compiler
          ? (*compiler)->assembly(
                {.text = listing.llvm_ir, .functions = {kKernelFunctionName}, .processor = processor_of(kernel.lanes())})
          : Expected<std::string>(compiler.refusal());
  if (assembly) {
    listing.assembly = *assembly;
  } else {
    listing.refusal = assembly.refusal().reason;
  }
  return listing;
}

}  // namespace sconce
