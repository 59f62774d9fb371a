#include "fusion/kernel_listing.h"

#include "fusion/cpu_kernels.h"
#include "fusion/kernel_cache.h"
#include "fusion/kernel_width.h"

namespace sconce {

std::vector<KernelListing> list_kernels() {
  std::vector<KernelListing> listings;
  for (const auto& kernel : KernelCache::instance().kernels()) {
    KernelListing listing{.groups = kernel->groups(),
                          .lanes = kernel->lanes(),
                          .program = kernel->program().text(),
                          .llvm_ir = llvm_text(kernel->program(), kernel->lanes())};
    const auto compiler = cpu_kernel_compiler();
    const auto assembly =
        compiler
            ? (*compiler)->assembly(
                  {.text = listing.llvm_ir, .functions = {kKernelFunctionName}, .processor = processor_of(kernel->lanes())})
            : Expected<std::string>(compiler.refusal());
    if (assembly) {
      listing.assembly = *assembly;
    } else {
      listing.refusal = assembly.refusal().reason;
    }
    listings.push_back(std::move(listing));
  }
  return listings;
}

}  // namespace sconce
