#include "plan/device/libtorch_cuda.h"

#include "base/shared_library.h"
#include "plan/device/device.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>

#include <typeinfo>

namespace sconce {
namespace {

// Whether ATen found the CUDA half when it looked. Asking makes it look, so: only once the library is loaded. (`hasCUDA`
// would not do: it is false on a machine without a GPU, too.)
bool aten_has_cuda_hooks() {
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  return typeid(hooks) != typeid(at::CUDAHooksInterface);
}

}  // namespace

std::string libtorch_directory() { return directory_of_code(reinterpret_cast<const void*>(&at::detail::getCUDAHooks)); }

Expected<void> load_cuda_early() {
  if (const auto driver = open_library("libcuda.so.1"); !driver) {
    return Refusal::because("this machine has no NVIDIA driver (" + driver.refusal().reason + ")");
  }
  return load_libtorch_cuda();
}

Expected<void> load_libtorch_cuda() {
  const std::string directory = libtorch_directory();
  const std::string path = directory.empty() ? "libtorch_cuda.so" : directory + "/libtorch_cuda.so";
  // Global, as if the program were linked to it: LibTorch's other CUDA libraries bind to it.
  if (const auto library = open_library(path, /*global=*/true); !library) {
    return Refusal::because("this LibTorch has no CUDA half that can be loaded (" + library.refusal().reason + ")");
  }
  if (!aten_has_cuda_hooks()) {
    return Refusal::because(
        "LibTorch's CUDA library came too late: an earlier call in this process (torch::manual_seed, a tensor on a GPU) "
        "made ATen settle on having no CUDA, and it keeps that for the life of the process. Load the model with "
        "Options::device(\"cuda\") before any other use of LibTorch, or link the program to torch_cuda");
  }
  return {};
}

void make_available(const c10::Device& device) {
  if (!device.is_cuda()) {
    return;
  }
  load_cuda_early().value_or_throw("no CUDA device");
  const int count = static_cast<int>(at::detail::getCUDAHooks().deviceCount());
  TORCH_CHECK(count > 0, "no CUDA device: LibTorch finds no GPU on this machine");
  TORCH_CHECK(!device.has_index() || device.index() < count, "no device ", device.str(),
              ": the last one is cuda:", count - 1);
}

}  // namespace sconce
