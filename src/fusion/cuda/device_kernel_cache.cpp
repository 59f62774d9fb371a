#include "fusion/cuda/device_kernel_cache.h"

#include "base/compile_queue.h"
#include "fusion/cuda/cuda_text.h"

#include <exception>

namespace sconce {

std::string CachedDeviceKernel::refusal() const {
  return is_refused_.load(std::memory_order_acquire) ? why_refused_ : std::string();
}

std::shared_ptr<CachedDeviceKernel> DeviceKernelCache::find(GridProgram grid, c10::DeviceIndex device, bool is_blocking) {
  auto text = cuda_text(grid);
  if (!text) {
    auto kernel = std::make_shared<CachedDeviceKernel>();
    kernel->why_refused_ = text.refusal().reason;
    kernel->is_refused_ = true;
    return kernel;
  }
  return find(std::move(grid), std::move(*text), device, is_blocking);
}

std::shared_ptr<CachedDeviceKernel> DeviceKernelCache::find_text(std::string text, c10::DeviceIndex device,
                                                                 bool is_blocking) {
  return find({}, std::move(text), device, is_blocking);
}

std::shared_ptr<CachedDeviceKernel> DeviceKernelCache::find(GridProgram grid, std::string text, c10::DeviceIndex device,
                                                            bool is_blocking) {
  std::shared_ptr<CachedDeviceKernel> kernel;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<CachedDeviceKernel>& found = kernels_[{text, device}];
    if (found == nullptr) {
      found = std::make_shared<CachedDeviceKernel>();
      found->grid_ = std::move(grid);
      found->text_ = std::move(text);
    }
    kernel = found;
  }
  if (is_blocking) {
    compile(*kernel, device);
  } else {
    submit(kernel, device);
  }
  return kernel;
}

void DeviceKernelCache::submit(const std::shared_ptr<CachedDeviceKernel>& kernel, c10::DeviceIndex device) {
  if (!kernel->is_submitted_.load(std::memory_order_relaxed) && !kernel->is_submitted_.exchange(true)) {
    kernel->is_submitted_ = CompileQueue::of_process().submit([this, kernel, device] { compile(*kernel, device); });
  }
}

std::vector<std::shared_ptr<const CachedDeviceKernel>> DeviceKernelCache::kernels() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<const CachedDeviceKernel>> all;
  for (const auto& [key, kernel] : kernels_) {
    all.push_back(kernel);
  }
  return all;
}

void DeviceKernelCache::compile(CachedDeviceKernel& kernel, c10::DeviceIndex device) const {
  const std::lock_guard<std::mutex> lock(kernel.compiling_);
  if (kernel.kernel() != nullptr || kernel.is_refused_) {
    return;
  }
  const auto refuse = [&kernel](std::string why) {
    kernel.why_refused_ = std::move(why);
    kernel.is_refused_.store(true, std::memory_order_release);
  };
  try {
    const auto code = runtime_.compile(kernel.text_, runtime_.architecture(device));
    if (!code) {
      refuse(code.refusal().reason);
      return;
    }
    auto module = runtime_.load_module(device, *code);
    if (!module) {
      refuse(module.refusal().reason);
      return;
    }
    const auto function = (*module)->kernel(kGridKernelName);
    if (!function) {
      refuse(function.refusal().reason);
      return;
    }
    if (kernel.grid_.form.has_list) {
      const auto of_list = (*module)->kernel(kListKernelName);
      if (!of_list) {
        refuse(of_list.refusal().reason);
        return;
      }
      kernel.list_kernel_ = *of_list;
    }
    kernel.module_ = std::move(*module);
    kernel.kernel_.store(*function, std::memory_order_release);
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

}  // namespace sconce
