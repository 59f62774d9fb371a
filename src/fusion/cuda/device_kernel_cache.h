// DeviceKernelCache: the kernels of the process that GPUs run, by the text of their grids.
#pragma once

#include "base/compiled_once.h"
#include "fusion/cuda/grid_program.h"
#include "plan/device/device.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace sconce {

// A kernel on one device that is compiled, or will be.
class CachedDeviceKernel {
 public:
  // Returns null while the kernel is compiled, and for ever if it cannot be compiled.
  const DeviceKernel* kernel() const { return compiled_.get() == nullptr ? nullptr : compiled_.get()->kernel; }
  // Returns the one for a list of calls; null while `kernel` is, and without a list.
  const DeviceKernel* list_kernel() const { return compiled_.get() == nullptr ? nullptr : compiled_.get()->list_kernel; }
  // Returns why the kernel cannot be compiled; empty while it may be.
  std::string refusal() const { return compiled_.refusal(); }
  const GridProgram& grid() const { return grid_; }  // empty for a kernel of a text
  // Returns the CUDA C++ text.
  const std::string& text() const { return text_; }

 private:
  friend class DeviceKernelCache;
  GridProgram grid_;
  std::string text_;
  struct Compiled {
    std::shared_ptr<DeviceModule> module;
    const DeviceKernel* kernel = nullptr;
    const DeviceKernel* list_kernel = nullptr;
  };
  CompiledOnce<Compiled> compiled_;
};

// Thread-safe. The background thread compiles. Kernels live as long as the process: a run may still be on its way when its
// plan is gone.
class DeviceKernelCache {
 public:
  // The runtime must outlive the cache.
  explicit DeviceKernelCache(DeviceRuntime& runtime) : runtime_(runtime) {}
  DeviceRuntime& runtime() const { return runtime_; }

  // Returns the grid's kernel on the device. With `is_blocking`, it is compiled when the function returns.
  std::shared_ptr<CachedDeviceKernel> find(GridProgram grid, c10::DeviceIndex device, bool is_blocking);
  // The same for a module with one kernel, of the name kGridKernelName.
  std::shared_ptr<CachedDeviceKernel> find_text(std::string text, c10::DeviceIndex device, bool is_blocking);
  // Lets the background thread compile the kernel (CompiledOnce::submit).
  void submit(const std::shared_ptr<CachedDeviceKernel>& kernel, c10::DeviceIndex device);
  // Returns all kernels, ordered by text.
  std::vector<std::shared_ptr<const CachedDeviceKernel>> kernels();

 private:
  std::shared_ptr<CachedDeviceKernel> find(GridProgram grid, std::string text, c10::DeviceIndex device, bool is_blocking);
  Expected<CachedDeviceKernel::Compiled> compile(const CachedDeviceKernel& kernel, c10::DeviceIndex device) const;

  DeviceRuntime& runtime_;
  std::mutex mutex_;
  std::map<std::pair<std::string, c10::DeviceIndex>, std::shared_ptr<CachedDeviceKernel>> kernels_;
};

}  // namespace sconce
