#include "plan/device/device.h"

#include "base/exception_message.h"
#include "base/shared_library.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <exception>

namespace sconce {
namespace {

// The function that libsconce_cuda exports. Null, with the reason, for another version of the interface; so its signature
// must not contain a type of the interface.
using MakeRuntime = DeviceRuntime* (*)(int interface_version, std::string* reason);
constexpr const char* kCudaLibrary = "libsconce_cuda.so";
constexpr const char* kCudaEntryPoint = "sconce_cuda_runtime";

Expected<DeviceRuntime*> load_cuda_runtime() {
  const std::string directory = directory_of_code(reinterpret_cast<const void*>(&find_device_runtime));
  const std::string path = directory.empty() ? kCudaLibrary : directory + "/" + kCudaLibrary;
  const auto library = open_library(path);
  if (!library) {
    return Refusal::because("sconce's CUDA library cannot be loaded (" + library.refusal().reason +
                            "); it is built where CUDA's headers are found and lies beside libsconce.so");
  }
  const auto make = reinterpret_cast<MakeRuntime>(library->symbol(kCudaEntryPoint));
  if (make == nullptr) {
    return Refusal::because(path + " is not sconce's CUDA library: it has no " + kCudaEntryPoint);
  }
  std::string reason;
  DeviceRuntime* runtime = make(kDeviceInterfaceVersion, &reason);
  if (runtime == nullptr) {
    return Refusal::because(path + ": " + reason);
  }
  return runtime;
}

std::atomic<DeviceRuntime*> in_place{nullptr};

uint64_t next_runtime_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

DeviceRuntime::DeviceRuntime() : id_(next_runtime_id()) {}

DeviceRuntimeInPlace::DeviceRuntimeInPlace(DeviceRuntime& runtime) {
  DeviceRuntime* const before = in_place.exchange(&runtime);
  TORCH_INTERNAL_ASSERT(before == nullptr, "another device runtime is in place");
}
DeviceRuntimeInPlace::~DeviceRuntimeInPlace() { in_place.store(nullptr); }

Expected<DeviceRuntime*> find_device_runtime(c10::DeviceType type) {
  if (DeviceRuntime* const runtime = in_place.load(); runtime != nullptr && runtime->type() == type) {
    return runtime;
  }
  if (type != c10::DeviceType::CUDA) {
    return Refusal::because("sconce has no back end for the device '" + c10::DeviceTypeName(type, /*lower_case=*/true) +
                            "'");
  }
  static const Expected<DeviceRuntime*> cuda = load_cuda_runtime();
  return cuda;
}

Expected<std::unique_ptr<Recording>> record(DeviceRuntime& runtime, c10::Stream stream, std::shared_ptr<RecordingPool> pool,
                                            const std::function<void()>& work) {
  auto session = runtime.begin_recording(stream, std::move(pool));
  if (!session) {
    return session.refusal();
  }
  try {
    work();
  } catch (const std::exception& failure) {
    return Refusal::because("the work cannot be recorded: " + message_of(failure));
  }
  return (*session)->finish();
}

}  // namespace sconce
