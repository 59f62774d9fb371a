#include "fusion/llvm/emit_object.h"

#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/IR/DiagnosticHandler.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <algorithm>

namespace sconce {
namespace {

// Collects the errors of code generation. Without a handler, LLVM prints errors and ends the process.
class CollectErrors final : public llvm::DiagnosticHandler {
 public:
  explicit CollectErrors(std::string* errors) : errors_(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() == llvm::DS_Error) {
      llvm::raw_string_ostream out(*errors_);
      llvm::DiagnosticPrinterRawOStream printer(out);
      out << (errors_->empty() ? "" : "; ");
      info.print(printer);
    }
    return true;
  }

 private:
  std::string* errors_;
};

// A TargetMachine serves one thread only, and making it takes a good part of a small kernel's compile time.
llvm::TargetMachine* target_machine(const llvm::orc::JITTargetMachineBuilder& target, std::string* why_not) {
  thread_local std::unique_ptr<llvm::TargetMachine> machine;
  if (machine == nullptr) {
    auto made = llvm::orc::JITTargetMachineBuilder(target).createTargetMachine();
    if (!made) {
      *why_not = "LLVM has no code generator for this machine: " + llvm::toString(made.takeError());
      return nullptr;
    }
    machine = std::move(*made);
  }
  return machine.get();
}

std::unique_ptr<llvm::Module> parse(const std::string& text, llvm::LLVMContext& context, std::string* why_not) {
  llvm::SMDiagnostic error;
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(text, error, context);
  if (module == nullptr) {
    *why_not = "invalid LLVM IR, line " + std::to_string(error.getLineNo()) + ": " + error.getMessage().str() + "\n  " +
               error.getLineContents().str();
    return nullptr;
  }
  std::string broken;
  llvm::raw_string_ostream out(broken);
  if (llvm::verifyModule(*module, &out)) {
    *why_not = "invalid LLVM IR: " + broken;
    return nullptr;
  }
  return module;
}

// Sets names and visibility as emit_object specifies. Returns false if a function is missing.
bool prepare_symbols(llvm::Module& module, const KernelText& kernel, const std::string& suffix, std::string* why_not) {
  for (const std::string& name : kernel.functions) {
    const llvm::Function* function = module.getFunction(name);
    if (function == nullptr || function->isDeclaration()) {
      *why_not = "the LLVM IR defines no function '" + name + "'";
      return false;
    }
  }
  const auto listed = [&kernel](llvm::StringRef name) {
    return std::find(kernel.functions.begin(), kernel.functions.end(), name) != kernel.functions.end();
  };
  for (llvm::GlobalValue& value : module.global_values()) {
    if (value.isDeclaration() || value.getName().starts_with("llvm.")) {
      continue;
    }
    if (listed(value.getName())) {
      value.setLinkage(llvm::GlobalValue::ExternalLinkage);
      value.setName(value.getName() + suffix);
    } else {
      value.setLinkage(llvm::GlobalValue::InternalLinkage);
    }
  }
  return true;
}

// Without this, LLVM splits 512-bit vectors if it assumes that they lower the processor's clock.
void use_full_vectors(llvm::Module& module, const llvm::TargetMachine& machine) {
  if (!machine.getTargetFeatureString().contains("+avx512f")) {
    return;
  }
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) {
      function.addFnAttr("prefer-vector-width", "512");
      function.addFnAttr("min-legal-vector-width", "512");
    }
  }
}

void run_o2_pipeline(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager call_graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(call_graph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, call_graph, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

}  // namespace

llvm::Expected<llvm::orc::JITTargetMachineBuilder> host_target() {
  auto target = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (target) {
    target->setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
    target->getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
  }
  return target;
}

std::unique_ptr<llvm::MemoryBuffer> emit_object(const KernelText& kernel, const std::string& suffix,
                                                const llvm::orc::JITTargetMachineBuilder& target, std::string* why_not) {
  llvm::TargetMachine* machine = target_machine(target, why_not);
  if (machine == nullptr) {
    return nullptr;
  }
  std::string errors;
  llvm::LLVMContext context;
  context.setDiagnosticHandler(std::make_unique<CollectErrors>(&errors));
  const std::unique_ptr<llvm::Module> module = parse(kernel.text, context, why_not);
  if (module == nullptr || !prepare_symbols(*module, kernel, suffix, why_not)) {
    return nullptr;
  }
  module->setTargetTriple(machine->getTargetTriple().str());
  module->setDataLayout(machine->createDataLayout());
  use_full_vectors(*module, *machine);
  if (kernel.optimize) {
    run_o2_pipeline(*module, *machine);
  }
  auto object = llvm::orc::SimpleCompiler(*machine)(*module);
  if (!object) {
    *why_not = "LLVM cannot compile the kernel: " + llvm::toString(object.takeError());
    return nullptr;
  }
  if (!errors.empty()) {
    *why_not = "LLVM cannot compile the kernel: " + errors;
    return nullptr;
  }
  return std::move(*object);
}

}  // namespace sconce
