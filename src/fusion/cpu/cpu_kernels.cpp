#include "fusion/cpu/cpu_kernels.h"

#include "base/shared_library.h"

#include <string>

namespace sconce {
namespace {

// The function that libsconce_llvm exports. Null, with the reason, for another version of the interface; so its signature
// must not contain a type of the interface.
using MakeCompiler = KernelCompiler* (*)(int interface_version, std::string* reason);
constexpr const char* kLibrary = "libsconce_llvm.so";
constexpr const char* kEntryPoint = "sconce_kernel_compiler";

Expected<KernelCompiler*> load_compiler() {
  const std::string directory = directory_of_code(reinterpret_cast<const void*>(&cpu_kernel_compiler));
  const std::string path = directory.empty() ? kLibrary : directory + "/" + kLibrary;
  // Not global, because the process may have another LLVM.
  const auto library = open_library(path);
  if (!library) {
    return Refusal::because("sconce's CPU code generator cannot be loaded (" + library.refusal().reason +
                            "); it lies beside libsconce.so and, built without LLVM's archives, needs libLLVM 19");
  }
  const auto make = reinterpret_cast<MakeCompiler>(library->symbol(kEntryPoint));
  if (make == nullptr) {
    return Refusal::because(path + " is not sconce's code generator: it has no " + kEntryPoint);
  }
  std::string reason;
  KernelCompiler* compiler = make(kKernelInterfaceVersion, &reason);
  if (compiler == nullptr) {
    return Refusal::because(path + ": " + reason);
  }
  return compiler;
}

}  // namespace

Expected<KernelCompiler*> cpu_kernel_compiler() {
  static const auto& compiler = *new Expected<KernelCompiler*>(load_compiler());  // jobs may outlive static objects
  return compiler;
}

Expected<std::shared_ptr<const KernelCode>> compile_cpu_kernel(const KernelText& kernel) {
  const auto compiler = cpu_kernel_compiler();
  return compiler ? (*compiler)->compile(kernel) : compiler.refusal();
}

}  // namespace sconce
