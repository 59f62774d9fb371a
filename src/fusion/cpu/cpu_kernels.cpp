#include "fusion/cpu/cpu_kernels.h"

#include "base/shared_library.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace sconce {
namespace {

// The function that libsconce_llvm exports. Null, with the reason, for another version of the interface; so its signature
// must not contain a type of the interface.
using MakeCompiler = KernelCompiler* (*)(int interface_version, std::string* reason);
constexpr const char* kLibrary = "libsconce_llvm.so";
constexpr const char* kEntryPoint = "sconce_kernel_compiler";

std::atomic<bool> could_not_load{false};

std::string path_of_library() {
  const std::string directory = directory_of_code(reinterpret_cast<const void*>(&cpu_kernel_compiler));
  return directory.empty() ? kLibrary : directory + "/" + kLibrary;
}

Expected<KernelCompiler*> load_library() {
  // Not global, because the process may have another LLVM.
  const auto library = open_library(path_of_library());
  if (!library) {
    return library.refusal();
  }
  const auto make = reinterpret_cast<MakeCompiler>(library->symbol(kEntryPoint));
  if (make == nullptr) {
    return Refusal::because(std::string("it is not sconce's code generator: it has no ") + kEntryPoint);
  }
  std::string reason;
  KernelCompiler* compiler = make(kKernelInterfaceVersion, &reason);
  return compiler != nullptr ? Expected<KernelCompiler*>(compiler) : Refusal::because(reason);
}

Expected<KernelCompiler*> load_compiler() {
  auto compiler = load_library();
  if (!compiler) {
    compiler = Refusal::because(std::string(kLibrary) + ": " + compiler.refusal().reason +
                                "; put the library beside libsconce.so, or install sconce again");
    could_not_load = true;
    TORCH_WARN("sconce: no kernels are compiled, and models run without them: ", compiler.refusal().reason);
  }
  return compiler;
}

}  // namespace

Expected<KernelCompiler*> cpu_kernel_compiler() {
  static const auto& compiler = *new Expected<KernelCompiler*>(load_compiler());  // jobs may outlive static objects
  return compiler;
}

std::string why_no_kernel_compiler() {
  static const bool is_missing = access(path_of_library().c_str(), R_OK) != 0;
  if (!is_missing && !could_not_load) {
    return {};
  }
  const auto compiler = cpu_kernel_compiler();
  return compiler ? std::string() : compiler.refusal().reason;
}

Expected<std::shared_ptr<const KernelCode>> compile_cpu_kernel(const KernelText& kernel) {
  const auto compiler = cpu_kernel_compiler();
  return compiler ? (*compiler)->compile(kernel) : compiler.refusal();
}

}  // namespace sconce
