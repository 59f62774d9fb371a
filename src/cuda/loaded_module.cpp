#include "cuda/loaded_module.h"

#include "base/assert.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace sconce::cuda {
namespace {

class CudaKernel final : public DeviceKernel {
 public:
  CudaKernel(std::string name, CUfunction function) : name_(std::move(name)), function_(function) {}

  const std::string& name() const override { return name_; }
  CUfunction function() const { return function_; }

  // By default, a function gets no more dynamic shared memory than this.
  Expected<void> allow_shared(Driver& driver, uint32_t bytes) const {
    if (bytes <= allowed_shared_.load(std::memory_order_relaxed)) [[likely]] {
      return {};
    }
    Expected<void> status =
        driver.set_function_attribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(bytes));
    if (status) {
      allowed_shared_.store(bytes, std::memory_order_relaxed);
    }
    return status;
  }

 private:
  const std::string name_;
  const CUfunction function_;
  mutable std::atomic<uint32_t> allowed_shared_{48 * 1024};
};

class CudaModule final : public DeviceModule {
 public:
  CudaModule(Driver& driver, CUcontext context, CUmodule module) : driver_(driver), context_(context), module_(module) {}
  ~CudaModule() override {
    const ContextScope current(driver_, context_);
    const RelaxedMode relaxed(driver_);
    ignore(driver_.unload_module(module_));
  }

  Expected<const DeviceKernel*> kernel(const std::string& name) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto known = kernels_.find(name); known != kernels_.end()) {
      return static_cast<const DeviceKernel*>(known->second.get());
    }
    const ContextScope current(driver_, context_);
    const RelaxedMode relaxed(driver_);
    CUfunction function = nullptr;
    const Expected<void> status =
        current.status() ? driver_.module_function(module_, name.c_str(), &function) : current.status();
    if (!status) {
      return Refusal::because("the compiled module has no kernel '" + name + "' that can be used (" +
                              status.refusal().reason + ")");
    }
    const auto added = kernels_.emplace(name, std::make_unique<CudaKernel>(name, function));
    return static_cast<const DeviceKernel*>(added.first->second.get());
  }

 private:
  Driver& driver_;
  const CUcontext context_;
  const CUmodule module_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<CudaKernel>> kernels_;
};

}  // namespace

Expected<std::shared_ptr<DeviceModule>> load_cubin(Driver& driver, CUcontext context, const std::string& cubin) {
  // The driver reads the image's size from its header, so it would read past the end of a malformed image.
  constexpr std::string_view kElf =
      "\x7f"
      "ELF";
  if (cubin.size() < 64 || cubin.compare(0, kElf.size(), kElf) != 0) {
    return Refusal::because("this is no machine code for a GPU: it does not begin as an ELF file does");
  }
  const ContextScope current(driver, context);
  const RelaxedMode relaxed(driver);
  CUmodule module = nullptr;
  const Expected<void> status = current.status() ? driver.load_module(cubin.data(), &module) : current.status();
  if (!status) {
    return Refusal::because("the GPU cannot load the compiled kernels (" + status.refusal().reason + ")");
  }
  return std::shared_ptr<DeviceModule>(std::make_shared<CudaModule>(driver, context, module));
}

namespace {

Expected<CUfunction> function_for(Driver& driver, const DeviceKernel& kernel, const LaunchShape& shape) {
  const auto* cuda_kernel = dynamic_cast<const CudaKernel*>(&kernel);
  SCONCE_ASSERT(cuda_kernel != nullptr, kernel.name(), " is a kernel of another back end");
  const Expected<void> status = cuda_kernel->allow_shared(driver, shape.shared_bytes);
  if (!status) {
    return status.refusal();
  }
  return cuda_kernel->function();
}

LaunchDimensions dimensions_of(const LaunchShape& shape) {
  LaunchDimensions dimensions;
  std::copy(shape.grid.begin(), shape.grid.end(), dimensions.grid);
  std::copy(shape.block.begin(), shape.block.end(), dimensions.block);
  dimensions.shared_bytes = shape.shared_bytes;
  return dimensions;
}

// The driver's type is not const, but it only reads.
void** arguments_of(std::span<void* const> arguments) { return const_cast<void**>(arguments.data()); }

}  // namespace

Expected<void> launch(Driver& driver, const DeviceKernel& kernel, const LaunchShape& shape, CUstream stream,
                      std::span<void* const> arguments) {
  const auto function = function_for(driver, kernel, shape);
  return function ? driver.launch_kernel(*function, dimensions_of(shape), stream, arguments_of(arguments))
                  : function.refusal();
}

Expected<void> change_launch(Driver& driver, CUgraphNode node, const DeviceKernel& kernel, const LaunchShape& shape,
                             std::span<void* const> arguments) {
  const auto function = function_for(driver, kernel, shape);
  return function ? driver.set_kernel_node(node, *function, dimensions_of(shape), arguments_of(arguments))
                  : function.refusal();
}

}  // namespace sconce::cuda
