// The CPU code generator: LLVM's code generation at O2 for the processor it runs on, linked into the process by ORC.
#include "base/file_cache.h"
#include "fusion/cpu/llvm/emit_object.h"
#include "fusion/program/kernel_code.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/TargetSelect.h>

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

namespace sconce {
namespace {

namespace orc = llvm::orc;

// Errors that ORC reports in addition to those it returns, for instance why a symbol could not be linked. It links on
// the calling thread.
thread_local std::string* reported_errors = nullptr;

// Collects what ORC reports on this thread while it lives, however linking ends.
class ReportedErrors {
 public:
  ReportedErrors() { reported_errors = &text_; }
  ~ReportedErrors() { reported_errors = nullptr; }
  ReportedErrors(const ReportedErrors&) = delete;
  ReportedErrors& operator=(const ReportedErrors&) = delete;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Finds functions that kernels call (SLEEF's, MKL's) in LibTorch. A program that links it has them in its global scope,
// where ORC looks first; in Python's process they are in none.
class FunctionsOfLibTorch final : public orc::DefinitionGenerator {
 public:
  llvm::Error tryToGenerate(orc::LookupState& /*state*/, orc::LookupKind /*kind*/, orc::JITDylib& library,
                            orc::JITDylibLookupFlags /*flags*/, const orc::SymbolLookupSet& names) override {
    orc::SymbolMap found;
    for (const auto& [name, flags] : names) {
      if (void* const address = libtorch_ == nullptr ? nullptr : dlsym(libtorch_, std::string(*name).c_str())) {
        found[name] = {orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
      }
    }
    return library.define(orc::absoluteSymbols(std::move(found)));
  }

 private:
  void* const libtorch_ = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);  // null in a process without it
};

class Jit;

// A kernel's code lies in a library of its own, so that names of kernels do not meet.
class JitCode final : public KernelCode {
 public:
  JitCode(Jit& jit, orc::JITDylib& library, size_t bytes) : jit_(jit), library_(library), bytes_(bytes) {}
  ~JitCode() override;
  JitCode(const JitCode&) = delete;
  JitCode& operator=(const JitCode&) = delete;

  orc::JITDylib& library() const { return library_; }
  void add(const std::string& function, void* address) { addresses_.emplace_back(function, address); }
  void* address(std::string_view function) const override {
    for (const auto& [name, address] : addresses_) {
      if (name == function) {
        return address;
      }
    }
    return nullptr;
  }
  size_t bytes() const override { return bytes_; }

 private:
  Jit& jit_;
  orc::JITDylib& library_;
  const size_t bytes_;
  std::vector<std::pair<std::string, void*>> addresses_;
};

class Jit final : public KernelCompiler {
 public:
  Jit(orc::JITTargetMachineBuilder target, std::unique_ptr<orc::LLJIT> lljit)
      : target_(std::move(target)), lljit_(std::move(lljit)) {
    lljit_->getExecutionSession().setErrorReporter([](llvm::Error error) {
      const std::string text = llvm::toString(std::move(error));
      if (reported_errors != nullptr) {
        *reported_errors += (reported_errors->empty() ? "" : "; ") + text;
      }
    });
  }

  Expected<std::shared_ptr<const KernelCode>> compile(const KernelText& kernel) override {
    auto object = object_of(kernel);
    if (!object) {
      return object.refusal();
    }
    auto library = lljit_->createJITDylib("kernel" + std::to_string(next_++));
    if (!library) {
      return Refusal::because("LLVM's linker makes no library: " + llvm::toString(library.takeError()));
    }
    ++live_;
    auto code = std::make_shared<JitCode>(*this, *library, (*object)->getBufferSize());
    const ReportedErrors reported;
    if (llvm::Error failure = link(*code, std::move(*object), kernel)) {
      return Refusal::because("the kernel cannot be linked: " + llvm::toString(std::move(failure)) +
                              (reported.text().empty() ? "" : " (" + reported.text() + ")"));
    }
    return code;
  }

  Expected<std::string> assembly(const KernelText& kernel) override { return emit_assembly(kernel); }

  std::string processor() const override { return target_.getCPU() + " " + target_.getFeatures().getString(); }
  size_t live_kernels() const override { return live_; }

  void free(orc::JITDylib& library) {
    // Fails only if the session has ended; then nothing is left to free.
    llvm::consumeError(lljit_->getExecutionSession().removeJITDylib(library));
    lljit_->getExecutionSession().getSymbolStringPool()->clearDeadEntries();
    --live_;
  }

 private:
  // Takes the object from the disk, or compiles it and keeps it there.
  Expected<std::unique_ptr<llvm::MemoryBuffer>> object_of(const KernelText& kernel) {
    if (kernel.cache_directory.empty()) {
      return emit_object(kernel);
    }
    std::string key = (kernel.processor.empty() ? processor() : kernel.processor) +
                      "\nLLVM " LLVM_VERSION_STRING "\nsconce " + std::to_string(kKernelInterfaceVersion) +
                      (kernel.optimize ? "\noptimized" : "");
    for (const std::string& function : kernel.functions) {
      key += "\n" + function;
    }
    key += "\n" + kernel.text;
    const FileCache cache(kernel.cache_directory, ".o");
    if (const auto kept = cache.find(key)) {
      return llvm::MemoryBuffer::getMemBufferCopy(*kept, "kernel");
    }
    auto object = emit_object(kernel);
    if (object) {
      cache.keep(key, {(*object)->getBufferStart(), (*object)->getBufferSize()});
    }
    return object;
  }

  llvm::Error link(JitCode& code, std::unique_ptr<llvm::MemoryBuffer> object, const KernelText& kernel);

  const orc::JITTargetMachineBuilder target_;
  const std::unique_ptr<orc::LLJIT> lljit_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> live_{0};
};

JitCode::~JitCode() { jit_.free(library_); }

llvm::Error Jit::link(JitCode& code, std::unique_ptr<llvm::MemoryBuffer> object, const KernelText& kernel) {
  orc::SymbolMap symbols;
  for (const auto& [name, address] : kernel.symbols) {
    symbols[lljit_->mangleAndIntern(name)] = {orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
  }
  if (llvm::Error failure = code.library().define(orc::absoluteSymbols(std::move(symbols)))) {
    return failure;
  }
  if (llvm::Error failure = lljit_->addObjectFile(code.library(), std::move(object))) {
    return failure;
  }
  for (const std::string& function : kernel.functions) {
    auto address = lljit_->lookup(code.library(), function);
    if (!address) {
      return address.takeError();
    }
    code.add(function, address->toPtr<void*>());
  }
  return llvm::Error::success();
}

// Refuses when LLVM has no support for this machine.
Expected<KernelCompiler*> make_jit() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::InitializeNativeTargetAsmParser();  // inline assembly
  auto target = target_of("");
  if (!target) {
    return Refusal::because("LLVM does not know this machine: " + llvm::toString(target.takeError()));
  }
  // Kernels have no static constructors, so the platform support for them is left out.
  auto lljit = orc::LLJITBuilder().setJITTargetMachineBuilder(*target).setPlatformSetUp(orc::setUpInactivePlatform).create();
  if (!lljit) {
    return Refusal::because("LLVM's linker does not start: " + llvm::toString(lljit.takeError()));
  }
  (*lljit)->getProcessSymbolsJITDylib()->addGenerator(std::make_unique<FunctionsOfLibTorch>());
  return new Jit(std::move(*target), std::move(*lljit));
}

}  // namespace

}  // namespace sconce

// The only symbol that libsconce looks up in this library (fusion/cpu/cpu_kernels.cpp).
extern "C" __attribute__((visibility("default"))) sconce::KernelCompiler* sconce_kernel_compiler(int interface_version,
                                                                                                 std::string* reason) {
  if (interface_version != sconce::kKernelInterfaceVersion) {
    *reason = "it is of another build of sconce: kernel interface " + std::to_string(sconce::kKernelInterfaceVersion) +
              ", wanted " + std::to_string(interface_version);
    return nullptr;
  }
  // Made at the first call and never destroyed: kernels may be freed at exit.
  static const sconce::Expected<sconce::KernelCompiler*> compiler = sconce::make_jit();
  if (!compiler) {
    *reason = compiler.refusal().reason;
    return nullptr;
  }
  return *compiler;
}
