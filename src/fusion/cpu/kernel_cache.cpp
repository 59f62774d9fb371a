#include "fusion/cpu/kernel_cache.h"

#include "base/compile_queue.h"
#include "base/environment.h"
#include "base/file_cache.h"
#include "base/log.h"
#include "fusion/cpu/cpu_kernels.h"
#include "fusion/program/kernel_width.h"
#include "fusion/program/scalar_functions.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <map>

namespace sconce {
namespace {

// Returns the scalar functions that the program calls.
std::vector<std::pair<std::string, void*>> symbols_of(const KernelProgram& program) {
  std::map<std::string, void*> symbols;
  for (const Instruction& each : program.code) {
    if (is_call(each.op)) {
      const ScalarFunction& function = scalar_functions()[each.index];
      symbols[symbol_of(function, each.type)] = address_of(function, each.type);
    }
  }
  return {symbols.begin(), symbols.end()};
}

}  // namespace

std::vector<std::string> CachedKernel::groups() const {
  const std::lock_guard<std::mutex> lock(KernelCache::instance().mutex_);
  return groups_;
}

// A child process must find the lock free. It is held for short times, and with no other lock.
KernelCache::KernelCache() {
  static KernelCache* cache = nullptr;
  cache = this;
  pthread_atfork([] { cache->mutex_.lock(); }, [] { cache->mutex_.unlock(); }, [] { cache->mutex_.unlock(); });
}

KernelCache& KernelCache::instance() {
  // Never destroyed: kernels may run until the process ends.
  static auto* const cache = new KernelCache;
  return *cache;
}

std::shared_ptr<CachedKernel> KernelCache::find(KernelProgram program, size_t lanes, bool blocking,
                                                const std::string& group) {
  constexpr size_t kMaxKernels = 4096;
  std::string text = "lanes " + std::to_string(lanes) + "\n" + program.text();
  std::shared_ptr<CachedKernel> kernel;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = kernels_.find(text); found != kernels_.end()) {
      kernel = found->second;
    } else {
      if (kernels_.size() >= kMaxKernels) {
        std::erase_if(kernels_, [](const auto& entry) { return entry.second.use_count() == 1; });
      }
      kernel = std::make_shared<CachedKernel>();
      kernel->text_ = text;
      kernel->program_ = std::move(program);
      kernel->lanes_ = lanes;
      kernel->number_ = next_number_++;
      kernels_.emplace(std::move(text), kernel);
    }
    if (std::find(kernel->groups_.begin(), kernel->groups_.end(), group) == kernel->groups_.end()) {
      kernel->groups_.push_back(group);
    }
  }
  if (!blocking) {
    submit(kernel);
  } else if (kernel->function() == nullptr) {
    // Not on this thread: LLVM ends the process where a thread's allocation fails.
    CompileQueue::of_process().run_and_wait([kernel] { kernel->compiled_.make([&] { return compile(*kernel); }); });
  }
  return kernel;
}

void KernelCache::submit(const std::shared_ptr<CachedKernel>& kernel) {
  kernel->compiled_.submit([kernel] { kernel->compiled_.make([&] { return compile(*kernel); }); });
}

std::vector<std::shared_ptr<const CachedKernel>> KernelCache::kernels() {
  std::vector<std::shared_ptr<const CachedKernel>> all;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [text, kernel] : kernels_) {
      all.push_back(kernel);
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->number_ < b->number_; });
  return all;
}

Expected<CachedKernel::Compiled> KernelCache::compile(const CachedKernel& kernel) {
  const auto compiler = cpu_kernel_compiler();  // starts LLVM
  if (!compiler) {
    return compiler.refusal();
  }
  const auto start = std::chrono::steady_clock::now();
  const auto code = (*compiler)->compile({.text = llvm_text(kernel.program_, kernel.lanes_),
                                          .functions = {kKernelFunctionName},
                                          .cache_directory = environment().kernel_cache,
                                          .symbols = symbols_of(kernel.program_),
                                          .processor = processor_of(kernel.lanes_)});
  page_out_compiler_later();
  if (!code) {
    log(LogLevel::kWarning, "a kernel cannot be compiled, so that operators run one by one: " + code.refusal().reason);
    return code.refusal();
  }
  if (is_logged(LogLevel::kInfo) && !environment().kernel_cache.empty()) {
    if (const std::string why = FileCache(environment().kernel_cache, ".o").why_not_kept(); !why.empty()) {
      log_once(LogLevel::kInfo, "compiled kernels are not kept in " + environment().kernel_cache + ": " + why);
    }
  }
  return CachedKernel::Compiled{*code, reinterpret_cast<KernelFunction>((*code)->address(kKernelFunctionName)),
                                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

}  // namespace sconce
