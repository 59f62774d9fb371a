#include "tools/sconce/device.h"

#include "plan/libtorch_cuda.h"
#include "tools/sconce/errors.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>

namespace sconce::cli {

c10::Device parse_device(const std::string& name) {
  const std::string message = "no device '" + name + "'; there are cpu, cuda and cuda:N";
  try {
    const c10::Device device(name);
    if (device.is_cpu() || device.is_cuda()) {
      return device;
    }
  } catch (const c10::Error&) {
    throw UserError(message);
  }
  throw UserError(message);
}

void make_available(const c10::Device& device) {
  if (!device.is_cuda()) {
    return;
  }
  std::string why_not;
  const int count = load_cuda_early(&why_not) ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0;
  if (count == 0) {
    throw UserError("no CUDA device: " + (why_not.empty() ? "LibTorch finds no GPU on this machine" : why_not) +
                    "; use --device cpu");
  }
  if (device.has_index() && device.index() >= count) {
    throw UserError("no device " + device.str() + ": the last one is cuda:" + std::to_string(count - 1));
  }
}

}  // namespace sconce::cli
