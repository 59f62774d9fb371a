#include "tools/sconce/commands/missing_kernels.h"

#include "fusion/cpu/cpu_kernels.h"
#include "fusion/program/kernel_width.h"

namespace sconce::cli {

void warn_of_missing_kernels(const Options& options) {
  if (options.compile() != CompileMode::kNever && (!options.device() || options.device()->is_cpu()) &&
      why_no_kernels().empty()) {
    static_cast<void>(cpu_kernel_compiler());
  }
}

}  // namespace sconce::cli
