#include "fusion/cpu/llvm/emit_object.h"

#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/IR/DiagnosticHandler.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>

#include <algorithm>
#include <map>

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
Expected<llvm::TargetMachine*> target_machine(const std::string& processor) {
  thread_local std::map<std::string, std::unique_ptr<llvm::TargetMachine>> machines;
  std::unique_ptr<llvm::TargetMachine>& machine = machines[processor];
  if (machine == nullptr) {
    auto target = target_of(processor);
    auto made = target ? target->createTargetMachine() : target.takeError();
    if (!made) {
      return Refusal::because("LLVM has no code generator for this machine: " + llvm::toString(made.takeError()));
    }
    if (!(*made)->getMCSubtargetInfo()->isCPUStringValid((*made)->getTargetCPU())) {
      return Refusal::because("LLVM knows no processor '" + processor + "'");
    }
    machine = std::move(*made);
  }
  return machine.get();
}

Expected<std::unique_ptr<llvm::Module>> parse(const std::string& text, llvm::LLVMContext& context) {
  llvm::SMDiagnostic error;
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(text, error, context);
  if (module == nullptr) {
    return Refusal::because("invalid LLVM IR, line " + std::to_string(error.getLineNo()) + ": " + error.getMessage().str() +
                            "\n  " + error.getLineContents().str());
  }
  std::string broken;
  llvm::raw_string_ostream out(broken);
  if (llvm::verifyModule(*module, &out)) {
    return Refusal::because("invalid LLVM IR: " + broken);
  }
  return module;
}

// Sets the visibility as emit_object specifies. Refuses if a function is missing.
Expected<void> prepare_symbols(llvm::Module& module, const KernelText& kernel) {
  for (const std::string& name : kernel.functions) {
    const llvm::Function* function = module.getFunction(name);
    if (function == nullptr || function->isDeclaration()) {
      return Refusal::because("the LLVM IR defines no function '" + name + "'");
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
    } else {
      value.setLinkage(llvm::GlobalValue::InternalLinkage);
    }
  }
  return {};
}

// Kernels have what their loops assign to in memory (llvm_text.cpp): makes registers and phis of it.
void use_registers(llvm::Module& module) {
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) {
      continue;
    }
    std::vector<llvm::AllocaInst*> variables;
    for (llvm::Instruction& each : function.getEntryBlock()) {
      auto* const variable = llvm::dyn_cast<llvm::AllocaInst>(&each);
      if (variable != nullptr && llvm::isAllocaPromotable(variable)) {
        variables.push_back(variable);
      }
    }
    llvm::DominatorTree tree(function);
    llvm::PromoteMemToReg(variables, tree);
  }
}

// Without this, LLVM splits 512-bit vectors if it assumes that they lower the processor's clock.
void use_full_vectors(llvm::Module& module, const llvm::TargetMachine& machine) {
  if (!machine.getMCSubtargetInfo()->checkFeatures("+avx512f")) {
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

llvm::Expected<llvm::orc::JITTargetMachineBuilder> target_of(const std::string& processor) {
  auto target = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (target) {
    if (!processor.empty()) {
      target->setCPU(processor);
      target->getFeatures() = llvm::SubtargetFeatures();
    }
    target->setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
    // Constants lie beside the code; the linker makes stubs for functions that are far away.
    target->setCodeModel(llvm::CodeModel::Small);
    target->setRelocationModel(llvm::Reloc::PIC_);
    target->getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
  }
  return target;
}

namespace {

// Parses and prepares the kernel, and hands it to `emit` with the machine.
template <typename Result, typename Emit>
Expected<Result> with_module(const KernelText& kernel, Emit emit) {
  const auto found = target_machine(kernel.processor);
  if (!found) {
    return found.refusal();
  }
  llvm::TargetMachine& machine = **found;
  std::string errors;
  llvm::LLVMContext context;
  context.setDiagnosticHandler(std::make_unique<CollectErrors>(&errors));
  const auto parsed = parse(kernel.text, context);
  if (!parsed) {
    return parsed.refusal();
  }
  llvm::Module& module = **parsed;
  if (const auto prepared = prepare_symbols(module, kernel); !prepared) {
    return prepared.refusal();
  }
  module.setTargetTriple(machine.getTargetTriple().str());
  module.setDataLayout(machine.createDataLayout());
  use_full_vectors(module, machine);
  use_registers(module);
  if (kernel.optimize) {
    run_o2_pipeline(module, machine);
  }
  Expected<Result> result = emit(module, machine);
  if (result && !errors.empty()) {
    return Refusal::because("LLVM cannot compile the kernel: " + errors);
  }
  return result;
}

}  // namespace

Expected<std::unique_ptr<llvm::MemoryBuffer>> emit_object(const KernelText& kernel) {
  using Object = std::unique_ptr<llvm::MemoryBuffer>;
  return with_module<Object>(kernel, [](llvm::Module& module, llvm::TargetMachine& machine) -> Expected<Object> {
    auto object = llvm::orc::SimpleCompiler(machine)(module);
    if (!object) {
      return Refusal::because("LLVM cannot compile the kernel: " + llvm::toString(object.takeError()));
    }
    return std::move(*object);
  });
}

Expected<std::string> emit_assembly(const KernelText& kernel) {
  return with_module<std::string>(kernel, [](llvm::Module& module, llvm::TargetMachine& machine) -> Expected<std::string> {
    llvm::SmallString<0> text;
    llvm::raw_svector_ostream out(text);
    llvm::legacy::PassManager passes;
    if (machine.addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile)) {
      return Refusal::because("LLVM prints no assembly for this machine");
    }
    passes.run(module);
    return text.str().str();
  });
}

}  // namespace sconce
