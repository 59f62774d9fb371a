// LLVM IR text to an object file: everything that happens before linking, on the calling thread's own LLVM state.
#pragma once

#include "fusion/program/kernel_code.h"

#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/Support/MemoryBuffer.h>

#include <memory>
#include <string>

namespace sconce {

// A builder for the processor of this name (KernelText::processor), with the settings that sconce's kernels need: strict
// floating point.
llvm::Expected<llvm::orc::JITTargetMachineBuilder> target_of(const std::string& processor);

// Compiles the kernel; everything but the listed functions is private. Refuses invalid text. Uses an LLVMContext of its own
// and one TargetMachine per thread and processor.
Expected<std::unique_ptr<llvm::MemoryBuffer>> emit_object(const KernelText& kernel);

// The same as assembly text.
Expected<std::string> emit_assembly(const KernelText& kernel);

}  // namespace sconce
