#include "fusion/cpu_kernels.h"

#include "base/shared_library.h"

#include <string>
#include <utility>

namespace sconce {
namespace {

// The function that libsconce_llvm exports. Null, with `why_not` set, for another version of the interface.
using MakeCompiler = KernelCompiler* (*)(int interface_version, std::string* why_not);
constexpr const char* kLibrary = "libsconce_llvm.so";
constexpr const char* kEntryPoint = "sconce_kernel_compiler";

Expected<KernelCompiler*> load_compiler() {
  const std::string directory = directory_of_code(reinterpret_cast<const void*>(&cpu_kernel_compiler));
  const std::string path = directory.empty() ? kLibrary : directory + "/" + kLibrary;
  // Not global, because the process may have another LLVM.
  const SharedLibrary library = open_library(path);
  if (!library) {
    return Refusal::because("sconce's CPU code generator cannot be loaded (" + library.why_not() +
                            "); it lies beside libsconce.so and needs libLLVM 19");
  }
  const auto make = reinterpret_cast<MakeCompiler>(library.symbol(kEntryPoint));
  if (make == nullptr) {
    return Refusal::because(path + " is not sconce's code generator: it has no " + kEntryPoint);
  }
  std::string why_not;
  KernelCompiler* compiler = make(kKernelInterfaceVersion, &why_not);
  if (compiler == nullptr) {
    return Refusal::because(path + ": " + why_not);
  }
  return compiler;
}

}  // namespace

Expected<KernelCompiler*> cpu_kernel_compiler() {
  static const Expected<KernelCompiler*> compiler = load_compiler();
  return compiler;
}

Expected<std::shared_ptr<const KernelCode>> compile_cpu_kernel(const KernelText& kernel) {
  const auto compiler = cpu_kernel_compiler();
  if (!compiler) {
    return compiler.refusal();
  }
  std::string why_not;
  std::shared_ptr<const KernelCode> code = (*compiler)->compile(kernel, &why_not);
  if (code == nullptr) {
    return Refusal::because(std::move(why_not));
  }
  return code;
}

}  // namespace sconce
