#include "fusion/kernels_on_device.h"

#include "fusion/cpu/cpu_kernels.h"
#include "fusion/cuda/cuda_nests.h"
#include "fusion/group_compilers.h"
#include "fusion/program/kernel_backend.h"
#include "fusion/program/kernel_width.h"

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

namespace sconce {
namespace {

// The state that the process has for each runtime.
class DeviceCompilers {
 public:
  // Never destroyed: a kernel may still run when the process ends.
  static DeviceCompilers& of_process() {
    static auto* const compilers = new DeviceCompilers();
    return *compilers;
  }

  DeviceKernelCache& kernels(DeviceRuntime& runtime) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return kernels_locked(runtime);
  }

  // Returns null for a device without kernels.
  const GroupCompiler* find(DeviceRuntime& runtime, c10::DeviceIndex device, bool is_blocking) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<GroupCompiler>& compiler = compilers_[{runtime.id(), device, is_blocking}];
    if (compiler == nullptr) {
      std::shared_ptr<const KernelBackend> nests = runtime.make_nests(device, is_blocking);
      if (nests == nullptr && runtime.compiles_text()) {
        nests = make_cuda_nests(kernels_locked(runtime), device, is_blocking);
      }
      compiler = nests == nullptr ? nullptr : make_kernels(std::move(nests));
    }
    return compiler.get();
  }

 private:
  DeviceKernelCache& kernels_locked(DeviceRuntime& runtime) {
    std::unique_ptr<DeviceKernelCache>& cache = caches_[runtime.id()];
    if (cache == nullptr) {
      cache = std::make_unique<DeviceKernelCache>(runtime);
    }
    return *cache;
  }

  std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<DeviceKernelCache>> caches_;  // by the runtime's id
  std::map<std::tuple<uint64_t, c10::DeviceIndex, bool>, std::unique_ptr<GroupCompiler>> compilers_;
};

}  // namespace

Expected<const GroupCompiler*> kernels_on(c10::Device device, bool is_blocking) {
  if (device.is_cpu()) {
    for (const auto& why_none : {why_no_kernels, why_no_kernel_compiler}) {
      if (std::string why = why_none(); !why.empty()) {
        return Refusal::because(std::move(why));
      }
    }
    return is_blocking ? &blocking_kernels() : &background_kernels();
  }
  const auto runtime = find_device_runtime(device.type());
  if (!runtime) {
    return runtime.refusal();
  }
  if (device.index() < 0 || device.index() >= (*runtime)->device_count()) {
    const std::string& why = (*runtime)->why_unavailable();
    return Refusal::because("there is no device " + device.str() + (why.empty() ? "" : ": " + why));
  }
  const GroupCompiler* const compiler = DeviceCompilers::of_process().find(**runtime, device.index(), is_blocking);
  if (compiler == nullptr) {
    return Refusal::because("sconce has no kernels for the device " + (*runtime)->name(device.index()));
  }
  return compiler;
}

DeviceKernelCache& device_kernels(DeviceRuntime& runtime) { return DeviceCompilers::of_process().kernels(runtime); }

}  // namespace sconce
