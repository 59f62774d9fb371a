#include "tools/sconce/commands/missing_kernels.h"

#include "fusion/cpu/cpu_kernels.h"
#include "fusion/program/kernel_width.h"

#include <c10/util/Exception.h>

#include <iostream>

namespace sconce::cli {
namespace {

class NoWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

std::string why_no_code_generator() {
  NoWarnings muted;
  const c10::WarningUtils::WarningHandlerGuard guard(&muted);
  const auto compiler = cpu_kernel_compiler();
  return compiler ? std::string() : compiler.refusal().reason;
}

}  // namespace

std::string why_no_cpu_kernels() {
  const std::string why = why_no_kernels();
  return why.empty() ? why_no_code_generator() : why;
}

void warn_of_missing_kernels(const Options& options) {
  const bool compiles_for_cpu = options.compile() != CompileMode::kNever &&
                                (!options.device() || options.device()->is_cpu()) && why_no_kernels().empty();
  if (const std::string why = compiles_for_cpu ? why_no_code_generator() : std::string(); !why.empty()) {
    std::cerr << "sconce: warning: no kernels are compiled, so the model may run slower: " << why << std::endl;
  }
}

}  // namespace sconce::cli
