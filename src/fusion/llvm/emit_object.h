// LLVM IR text to an object file: everything that happens before linking, on the calling thread's own LLVM state.
#pragma once

#include "fusion/kernel_code.h"

#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/Support/MemoryBuffer.h>

#include <memory>
#include <string>

namespace sconce {

// A builder for the host's processor with the settings that sconce's kernels need (strict floating point).
llvm::Expected<llvm::orc::JITTargetMachineBuilder> host_target();

// Compiles the kernel; everything but the listed functions is private. Refuses invalid text. Uses an LLVMContext of its own
// and one TargetMachine per thread.
Expected<std::unique_ptr<llvm::MemoryBuffer>> emit_object(const KernelText& kernel,
                                                          const llvm::orc::JITTargetMachineBuilder& target);

// The same as assembly text.
Expected<std::string> emit_assembly(const KernelText& kernel, const llvm::orc::JITTargetMachineBuilder& target);

}  // namespace sconce
