// KernelCache: the compiled kernels of the process, by the text of their programs.
#pragma once

#include "base/compiled_once.h"
#include "fusion/cpu/llvm_text.h"
#include "fusion/program/kernel_code.h"
#include "fusion/program/kernel_program.h"

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace sconce {

// A kernel that is compiled, or will be.
class CachedKernel {
 public:
  // Returns null while the kernel is compiled, and for ever if it cannot be compiled.
  KernelFunction function() const { return compiled_.get() == nullptr ? nullptr : compiled_.get()->function; }
  // Returns why the kernel cannot be compiled; empty while it may be.
  std::string refusal() const { return compiled_.refusal(); }
  // Returns how long it took to compile the kernel, or to take it from the disk; 0 before that. LLVM's start does not count.
  double seconds() const { return compiled_.get() == nullptr ? 0 : compiled_.get()->seconds; }
  const std::string& text() const { return text_; }
  const KernelProgram& program() const { return program_; }
  size_t lanes() const { return lanes_; }
  // Returns the names of the groups that asked for the kernel, each once.
  std::vector<std::string> groups() const;

 private:
  friend class KernelCache;
  std::string text_;
  KernelProgram program_;
  size_t lanes_ = 0;
  struct Compiled {
    std::shared_ptr<const KernelCode> code;
    KernelFunction function = nullptr;
    double seconds = 0;
  };
  CompiledOnce<Compiled> compiled_;
  std::vector<std::string> groups_;  // the cache's lock protects them
  size_t number_ = 0;                // counts kernels in the order in which they were asked for
};

// Thread-safe. A background thread of low priority compiles, so that no run waits. A kernel lives as long as somebody holds
// it; the cache keeps the newest kernels besides.
class KernelCache {
 public:
  static KernelCache& instance();
  // Returns the program's kernel for `lanes` elements at a time. With `blocking`, it is compiled when the function returns.
  // `group` names what the kernel computes.
  std::shared_ptr<CachedKernel> find(KernelProgram program, size_t lanes, bool blocking, const std::string& group);
  // Lets the background thread compile the kernel (CompiledOnce::submit).
  static void submit(const std::shared_ptr<CachedKernel>& kernel);
  // Returns the kernels that are kept, the oldest first.
  std::vector<std::shared_ptr<const CachedKernel>> kernels();

 private:
  friend class CachedKernel;
  KernelCache();
  static Expected<CachedKernel::Compiled> compile(const CachedKernel& kernel);

  std::mutex mutex_;
  size_t next_number_ = 0;
  std::unordered_map<std::string, std::shared_ptr<CachedKernel>> kernels_;
};

}  // namespace sconce
