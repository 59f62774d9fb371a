#include "fusion/cpu/cpu_kernels.h"

#include "base/compile_queue.h"
#include "base/log.h"
#include "base/shared_library.h"

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

// Opens the library at the first call.
const Expected<SharedLibrary>& opened_library() {
  // Not global, because the process may have another LLVM. Never destroyed: jobs may outlive static objects.
  static const auto& library = *new Expected<SharedLibrary>(open_library(path_of_library()));
  return library;
}

Expected<KernelCompiler*> load_library() {
  const auto& library = opened_library();
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
    log(LogLevel::kWarning, "no kernels are compiled, and models run without them: " + compiler.refusal().reason);
  }
  return compiler;
}

}  // namespace

Expected<KernelCompiler*> cpu_kernel_compiler() {
  static const auto& compiler = *new Expected<KernelCompiler*>(load_compiler());  // jobs may outlive static objects
  return compiler;
}

void page_out_compiler_later() {
  static std::atomic<bool> is_waiting{false};
  if (is_waiting.exchange(true)) {
    return;
  }
  bool is_submitted = false;
  try {
    is_submitted = CompileQueue::of_process().submit_last([] {
      is_waiting = false;
      if (opened_library()) {
        opened_library()->page_out();
      }
    });
  } catch (const std::bad_alloc&) {
    // The pages stay.
  }
  if (!is_submitted) {
    is_waiting = false;
  }
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
