#include "fusion/cuda/device_kernel_cache.h"

#include "fusion/cuda/cuda_text.h"

namespace sconce {

std::shared_ptr<CachedDeviceKernel> DeviceKernelCache::find(GridProgram grid, c10::DeviceIndex device, bool is_blocking) {
  auto text = cuda_text(grid);
  if (!text) {
    auto kernel = std::make_shared<CachedDeviceKernel>();
    kernel->compiled_.make([&]() -> Expected<CachedDeviceKernel::Compiled> { return text.refusal(); });
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
    kernel->compiled_.make([&] { return compile(*kernel, device); });
  } else {
    submit(kernel, device);
  }
  return kernel;
}

void DeviceKernelCache::submit(const std::shared_ptr<CachedDeviceKernel>& kernel, c10::DeviceIndex device) {
  kernel->compiled_.submit([this, kernel, device] { kernel->compiled_.make([&] { return compile(*kernel, device); }); });
}

std::vector<std::shared_ptr<const CachedDeviceKernel>> DeviceKernelCache::kernels() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<const CachedDeviceKernel>> all;
  for (const auto& [key, kernel] : kernels_) {
    all.push_back(kernel);
  }
  return all;
}

Expected<CachedDeviceKernel::Compiled> DeviceKernelCache::compile(const CachedDeviceKernel& kernel,
                                                                  c10::DeviceIndex device) const {
  const auto code = runtime_.compile(kernel.text_, runtime_.architecture(device));
  if (!code) {
    return code.refusal();
  }
  auto module = runtime_.load_module(device, *code);
  if (!module) {
    return module.refusal();
  }
  const auto function = (*module)->kernel(kGridKernelName);
  if (!function) {
    return function.refusal();
  }
  CachedDeviceKernel::Compiled compiled{nullptr, *function, nullptr};
  if (kernel.grid_.form.has_list) {
    const auto of_list = (*module)->kernel(kListKernelName);
    if (!of_list) {
      return of_list.refusal();
    }
    compiled.list_kernel = *of_list;
  }
  compiled.module = std::move(*module);
  return compiled;
}

}  // namespace sconce
