// The interface between libsconce and its CPU code generator (libsconce_llvm): LLVM IR goes in as text, callable machine
// code comes out. Includes no headers of LibTorch or LLVM, because each side includes only one of the two.
#pragma once

#include "base/expected.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sconce {

// Both sides of the library boundary must agree on this file: count up when it changes.
constexpr int kKernelInterfaceVersion = 5;

struct KernelText {
  // An LLVM IR module. Target and data layout are filled in; external functions are looked up in the process (MKL, Sleef,
  // libm). Floating-point operations run as written: a product and a sum are fused only by `llvm.fma`.
  std::string text;
  // The functions to call, by their names in the text. Kernels may use the same names.
  std::vector<std::string> functions;
  // Run LLVM's O2 pipeline over the IR first. Not needed for text that is written in vectors; doubles the time.
  bool optimize = false;
  // Where object files are kept from process to process; empty: nowhere.
  std::string cache_directory;
  // Functions of this process that the text calls, beside those that its libraries export: names and addresses. The code
  // that is kept on disk has the names alone.
  std::vector<std::pair<std::string, void*>> symbols = {};
  // The processor to compile for, by LLVM's name ("x86-64-v3"); empty: the one that runs.
  std::string processor = {};
};

// Machine code in memory, freed with its last owner. A caller must own it.
class KernelCode {
 public:
  virtual ~KernelCode() = default;
  // The address of one of KernelText::functions; null for another name. To be cast to the function's type.
  virtual void* address(std::string_view function) const = 0;
  virtual size_t bytes() const = 0;  // of the object file, about what the code takes
};

// Thread-safe, and threads that compile don't wait for each other.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  // Refuses text that is not valid IR, lacks a function, or calls something that is not there.
  virtual Expected<std::shared_ptr<const KernelCode>> compile(const KernelText& kernel) = 0;
  // Name and features of the processor that code is made for: a part of the key where code is kept.
  virtual std::string processor() const = 0;
  virtual size_t live_kernels() const = 0;
  // Returns the kernel's assembly, for people. Refuses as `compile` does.
  virtual Expected<std::string> assembly(const KernelText& kernel) = 0;
};

}  // namespace sconce
