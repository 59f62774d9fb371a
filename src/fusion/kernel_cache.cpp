#include "fusion/kernel_cache.h"

#include "base/environment.h"
#include "fusion/cpu_kernels.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <thread>

namespace sconce {

std::string CachedKernel::refusal() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return refusal_;
}

size_t kernel_lanes() {
  static const size_t lanes = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
                                  ? 16
                              : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 8
                                                                                                : 0;
  return lanes;
}

// The background thread. It starts with the first kernel and ends with the process.
class KernelCache::Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void submit(std::shared_ptr<CachedKernel> kernel) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(std::move(kernel));
    }
    changed_.notify_all();
  }

  void finish() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.empty() && !is_busy_; });
  }

 private:
  void work() {
    // Linux sets the priority of a thread by its id.
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
      if (ends_) {
        return;
      }
      const std::shared_ptr<CachedKernel> kernel = std::move(waiting_.front());
      waiting_.pop_front();
      is_busy_ = true;
      lock.unlock();
      compile(*kernel);
      lock.lock();
      is_busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<CachedKernel>> waiting_;
  bool is_busy_ = false;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

KernelCache& KernelCache::instance() {
  // Never destroyed: kernels may run until the process ends.
  static auto* const cache = new KernelCache;
  return *cache;
}

KernelCache::Worker& KernelCache::worker() {
  static Worker worker;  // joined at exit
  return worker;
}

std::shared_ptr<const CachedKernel> KernelCache::find(KernelProgram program, bool blocking) {
  constexpr size_t kMostKernels = 4096;
  std::string text = program.text();
  std::shared_ptr<CachedKernel> kernel;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = kernels_.find(text); found != kernels_.end()) {
      kernel = found->second;
    } else {
      if (kernels_.size() >= kMostKernels) {
        std::erase_if(kernels_, [](const auto& entry) { return entry.second.use_count() == 1; });
      }
      kernel = std::make_shared<CachedKernel>();
      kernel->text_ = text;
      kernel->program_ = std::move(program);
      kernels_.emplace(std::move(text), kernel);
      if (!blocking) {
        worker().submit(kernel);
      }
    }
  }
  if (blocking && kernel->function() == nullptr) {
    compile(*kernel);
  }
  return kernel;
}

void KernelCache::finish() { worker().finish(); }

void KernelCache::compile(CachedKernel& kernel) {
  const std::lock_guard<std::mutex> lock(kernel.mutex_);
  if (kernel.function_.load() != nullptr || !kernel.refusal_.empty()) {
    return;
  }
  try {
    const auto code = compile_cpu_kernel({.text = llvm_text(kernel.program_, kernel_lanes()),
                                          .functions = {kKernelFunctionName},
                                          .cache_directory = environment().kernel_cache});
    if (!code) {
      kernel.refusal_ = code.refusal().reason;
      return;
    }
    kernel.code_ = *code;
    kernel.function_.store(reinterpret_cast<KernelFunction>(kernel.code_->address(kKernelFunctionName)),
                           std::memory_order_release);
  } catch (const std::exception& error) {
    kernel.refusal_ = error.what();
  }
}

}  // namespace sconce
