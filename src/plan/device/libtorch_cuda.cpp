#include "plan/device/libtorch_cuda.h"

#include "base/shared_library.h"

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

bool load_cuda_early(std::string* why_not) {
  if (const SharedLibrary driver = open_library("libcuda.so.1"); !driver) {
    *why_not = "this machine has no NVIDIA driver (" + driver.why_not() + ")";
    return false;
  }
  return load_libtorch_cuda(why_not);
}

bool load_libtorch_cuda(std::string* why_not) {
  const std::string directory = libtorch_directory();
  const std::string path = directory.empty() ? "libtorch_cuda.so" : directory + "/libtorch_cuda.so";
  // Global, as if the program were linked to it: LibTorch's other CUDA libraries bind to it.
  if (const SharedLibrary library = open_library(path, /*global=*/true); !library) {
    *why_not = "this LibTorch has no CUDA half that can be loaded (" + library.why_not() + ")";
    return false;
  }
  if (!aten_has_cuda_hooks()) {
    *why_not =
        "LibTorch's CUDA library came too late: an earlier call in this process (torch::manual_seed, a tensor on a GPU) "
        "made ATen settle on having no CUDA, and it keeps that for the life of the process. Load the model with "
        "Options::device(\"cuda\") before any other use of LibTorch, or link the program to torch_cuda";
    return false;
  }
  return true;
}

void make_available(const c10::Device& device) {
  if (!device.is_cuda()) {
    return;
  }
  std::string why_not;
  const int count = load_cuda_early(&why_not) ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0;
  TORCH_CHECK(count > 0, "no CUDA device: ", why_not.empty() ? "LibTorch finds no GPU on this machine" : why_not);
  TORCH_CHECK(!device.has_index() || device.index() < count, "no device ", device.str(),
              ": the last one is cuda:", count - 1);
}

}  // namespace sconce
