#include "plan/device/device.h"

#include "base/assert.h"
#include "base/exception_message.h"
#include "base/shared_library.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>

namespace sconce {
namespace {

// The library of a kind of device, which lies beside libsconce.so.
struct DeviceLibrary {
  c10::DeviceType type;
  const char* name;  // in messages
  const char* file;
  const char* entry_point;
  const char* built_where;
};
constexpr DeviceLibrary kLibraries[] = {
    {c10::DeviceType::CUDA, "CUDA", "libsconce_cuda.so", "sconce_cuda_runtime", "CUDA's headers are found"}};

// The function that such a library exports. Null, with the reason, for another version of the interface; so its signature
// must not contain a type of the interface.
using MakeRuntime = DeviceRuntime* (*)(int interface_version, std::string* reason);

Expected<DeviceRuntime*> load_runtime(const DeviceLibrary& of_device) {
  const std::string name = of_device.name;
  const std::string directory = directory_of_code(reinterpret_cast<const void*>(&find_device_runtime));
  const std::string path = directory.empty() ? of_device.file : directory + "/" + of_device.file;
  const auto library = open_library(path);
  if (!library) {
    return Refusal::because("sconce's " + name + " library cannot be loaded (" + library.refusal().reason +
                            "); it is built where " + of_device.built_where + " and lies beside libsconce.so");
  }
  const auto make = reinterpret_cast<MakeRuntime>(library->symbol(of_device.entry_point));
  if (make == nullptr) {
    return Refusal::because(path + " is not sconce's " + name + " library: it has no " + of_device.entry_point);
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
  SCONCE_ASSERT(before == nullptr, "another device runtime is in place");
}
DeviceRuntimeInPlace::~DeviceRuntimeInPlace() { in_place.store(nullptr); }

Expected<DeviceRuntime*> find_device_runtime(c10::DeviceType type) {
  if (DeviceRuntime* const runtime = in_place.load(); runtime != nullptr && runtime->type() == type) {
    return runtime;
  }
  const auto known = std::find_if(std::begin(kLibraries), std::end(kLibraries),
                                  [&](const DeviceLibrary& library) { return library.type == type; });
  if (known == std::end(kLibraries)) {
    return Refusal::because("sconce has no back end for the device '" + c10::DeviceTypeName(type, /*lower_case=*/true) +
                            "'");
  }
  static std::mutex mutex;
  static auto& loaded = *new std::map<c10::DeviceType, Expected<DeviceRuntime*>>();  // used until the process ends
  const std::lock_guard<std::mutex> lock(mutex);
  auto found = loaded.find(type);
  if (found == loaded.end()) {
    found = loaded.emplace(type, load_runtime(*known)).first;
  }
  return found->second;
}

Expected<std::unique_ptr<Capture>> capture_work(DeviceRuntime& runtime, c10::Stream stream,
                                                std::shared_ptr<CapturePool> pool, const std::function<void()>& work) {
  auto session = runtime.begin_capture(stream, std::move(pool));
  if (!session) {
    return session.refusal();
  }
  try {
    work();
  } catch (const std::exception& failure) {
    return Refusal::because("the work cannot be captured: " + message_of(failure));
  }
  return (*session)->finish();
}

}  // namespace sconce
