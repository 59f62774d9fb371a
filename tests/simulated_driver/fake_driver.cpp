// Devices, contexts, modules and memory of the simulated driver; streams and graphs are in fake_driver_streams.cpp.
#include "tests/simulated_driver/fake_driver.h"

#include <algorithm>
#include <cstring>
#include <sstream>

namespace sconce::cuda {
namespace {

constexpr size_t kMemoryBytes = size_t(1) << 26;
constexpr size_t kHeaderBytes = 64;  // of an image

CUcontext context_of(CUdevice device) { return reinterpret_cast<CUcontext>(uintptr_t(0x100 + device)); }

}  // namespace

// ---- for tests ----------------------------------------------------------------------------------------------------

void FakeDriver::define_kernel(const std::string& name, std::vector<size_t> argument_bytes, Kernel kernel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  definitions_[name] = {std::move(argument_bytes), std::move(kernel)};
}

void FakeDriver::define_kernels(KernelsOfText kernels) {
  const std::lock_guard<std::mutex> lock(mutex_);
  kernels_of_text_ = std::move(kernels);
}

std::string FakeDriver::image(const std::string& text) {
  std::string bytes(kHeaderBytes, '\0');
  bytes.replace(0, 4,
                "\x7f"
                "ELF");
  return bytes + text;
}

void FakeDriver::fail_call(size_t n, CUresult code) { fail_call_of({}, n, code); }

void FakeDriver::fail_call_of(const std::string& function, size_t n, CUresult code) {
  const std::lock_guard<std::mutex> lock(mutex_);
  failures_.push_back({function, n, code});
}

void FakeDriver::fail_nothing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  failures_.clear();
}

bool FakeDriver::has_failed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(failures_.begin(), failures_.end(), [](const InjectedFailure& each) { return each.countdown == 0; });
}

std::vector<std::string> FakeDriver::calls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

std::vector<std::string> FakeDriver::misuse() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return misuse_;
}

std::string FakeDriver::leaks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::ostringstream out;
  const auto tell = [&out](const char* what, size_t count) {
    if (count != 0) {
      out << count << " " << what << "; ";
    }
  };
  size_t retained = 0;
  for (const auto& [device, count] : retained_) {
    retained += count;
  }
  size_t pushed = 0;
  for (const auto& [thread, stack] : contexts_) {
    pushed += stack.size();
  }
  const auto relaxed = [](const auto& entry) { return entry.second != CU_STREAM_CAPTURE_MODE_GLOBAL; };
  tell("retained contexts", retained);
  tell("pushed contexts", pushed);
  tell("threads with a changed capture mode", size_t(std::count_if(modes_.begin(), modes_.end(), relaxed)));
  tell("modules", modules_.size());
  tell("streams", streams_.size() - 1);
  tell("events", events_.size());
  tell("captures", captures_.size());
  tell("graphs", graphs_.size());
  tell("executable graphs", executables_.size());
  tell("allocations", allocations_.size());
  return out.str();
}

// ---- every call ---------------------------------------------------------------------------------------------------

CUresult FakeDriver::enter(const char* function) {
  calls_.emplace_back(function);
  CUresult code = CUDA_SUCCESS;
  for (InjectedFailure& failure : failures_) {
    if ((failure.function.empty() || failure.function == function) && failure.countdown != 0 && --failure.countdown == 0) {
      code = failure.code;
    }
  }
  if (code == CUDA_SUCCESS && !initialized_ && std::strcmp(function, "init") != 0) {
    code = CUDA_ERROR_NOT_INITIALIZED;
  }
  return code;
}

Expected<void> FakeDriver::outcome(const char* function, CUresult code) {
  if (code == CUDA_SUCCESS) {
    return {};
  }
  return Refusal::because(std::string(function) + ": " + error_text(code));
}

std::string FakeDriver::error_text(CUresult code) { return "simulated driver: error " + std::to_string(int(code)); }

CUresult FakeDriver::needs_context() const {
  const auto stack = contexts_.find(std::this_thread::get_id());
  return stack == contexts_.end() || stack->second.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// The frame of a call: `enter`, then the body unless a failure is injected. The body assigns `code`.
#define SCONCE_FAKE_CALL(function)                \
  const std::lock_guard<std::mutex> lock(mutex_); \
  CUresult code = enter(function);                \
  if (code != CUDA_SUCCESS) return outcome(function, code).refusal()

Expected<void> FakeDriver::init() {
  SCONCE_FAKE_CALL("init");
  initialized_ = true;
  return {};
}

Expected<void> FakeDriver::driver_version(int* version) {
  SCONCE_FAKE_CALL("driver_version");
  *version = CUDA_VERSION;
  return {};
}

Expected<void> FakeDriver::device_count(int* count) {
  SCONCE_FAKE_CALL("device_count");
  *count = device_count_;
  return {};
}

Expected<void> FakeDriver::device(int ordinal, CUdevice* device) {
  SCONCE_FAKE_CALL("device");
  *device = ordinal;
  return outcome("device", ordinal < device_count_ ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

Expected<void> FakeDriver::device_name(CUdevice device, std::string* name) {
  SCONCE_FAKE_CALL("device_name");
  *name = "simulated GPU " + std::to_string(device);
  return {};
}

// Those of an H200.
Expected<void> FakeDriver::device_attribute(CUdevice_attribute attribute, CUdevice, int* value) {
  SCONCE_FAKE_CALL("device_attribute");
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 * 1024; break;
    default: *value = 0; break;
  }
  return {};
}

// ---- contexts -----------------------------------------------------------------------------------------------------

Expected<void> FakeDriver::retain_primary_context(CUdevice device, CUcontext* context) {
  SCONCE_FAKE_CALL("retain_primary_context");
  ++retained_[device];
  *context = context_of(device);
  return {};
}

Expected<void> FakeDriver::release_primary_context(CUdevice device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CUresult code = enter("release_primary_context");
  if (retained_[device] == 0) {
    misuse_.emplace_back("a primary context is released more often than retained");
    return outcome("release_primary_context", CUDA_ERROR_INVALID_CONTEXT);
  }
  --retained_[device];
  return outcome("release_primary_context", code);
}

Expected<void> FakeDriver::current_context(CUcontext* context) {
  SCONCE_FAKE_CALL("current_context");
  const auto& stack = contexts_[std::this_thread::get_id()];
  *context = stack.empty() ? nullptr : stack.back();
  return {};
}

Expected<void> FakeDriver::push_context(CUcontext context) {
  SCONCE_FAKE_CALL("push_context");
  contexts_[std::this_thread::get_id()].push_back(context);
  return {};
}

Expected<void> FakeDriver::pop_context() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CUresult code = enter("pop_context");
  auto& stack = contexts_[std::this_thread::get_id()];
  if (stack.empty()) {
    misuse_.emplace_back("a context is popped that was not pushed");
    return outcome("pop_context", CUDA_ERROR_INVALID_CONTEXT);
  }
  stack.pop_back();
  return outcome("pop_context", code);
}

// ---- modules ------------------------------------------------------------------------------------------------------

Expected<void> FakeDriver::load_module(const void* image, CUmodule* module) {
  SCONCE_FAKE_CALL("load_module");
  code = needs_context();
  if (code == CUDA_SUCCESS && std::memcmp(image,
                                          "\x7f"
                                          "ELF",
                                          4) != 0) {
    code = CUDA_ERROR_INVALID_IMAGE;
  }
  if (code == CUDA_SUCCESS) {
    code = forbidden_while_capturing();
  }
  if (code == CUDA_SUCCESS) {
    *module = new_handle<CUmodule>();
    modules_[*module].text = static_cast<const char*>(image) + kHeaderBytes;
  }
  return outcome("load_module", code);
}

Expected<void> FakeDriver::unload_module(CUmodule module) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CUresult code = enter("unload_module");
  const auto found = modules_.find(module);
  if (found == modules_.end()) {
    misuse_.emplace_back("an unknown module is unloaded");
    return outcome("unload_module", CUDA_ERROR_INVALID_HANDLE);
  }
  for (const CUfunction function : found->second.functions) {
    functions_.erase(function);
  }
  modules_.erase(found);
  return outcome("unload_module", code);
}

Expected<void> FakeDriver::module_function(CUmodule module, const char* name, CUfunction* function) {
  SCONCE_FAKE_CALL("module_function");
  code = needs_context();
  const auto found = modules_.find(module);
  if (code == CUDA_SUCCESS && found == modules_.end()) {
    code = CUDA_ERROR_INVALID_HANDLE;
  }
  std::optional<KernelDefinition> definition;
  if (const auto named = definitions_.find(name); named != definitions_.end()) {
    definition = named->second;
  } else if (code == CUDA_SUCCESS && kernels_of_text_) {
    definition = kernels_of_text_(found->second.text, name);
  }
  if (code == CUDA_SUCCESS && !definition) {
    code = CUDA_ERROR_NOT_FOUND;
  }
  if (code == CUDA_SUCCESS) {
    code = forbidden_while_capturing();
  }
  if (code == CUDA_SUCCESS) {
    *function = new_handle<CUfunction>();
    found->second.functions.insert(*function);
    functions_[*function].definition = std::move(*definition);
  }
  return outcome("module_function", code);
}

Expected<void> FakeDriver::set_function_attribute(CUfunction function, CUfunction_attribute attribute, int value) {
  SCONCE_FAKE_CALL("set_function_attribute");
  const auto found = functions_.find(function);
  if (found == functions_.end()) {
    code = CUDA_ERROR_INVALID_HANDLE;
  } else if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    constexpr int kDeviceLimit = 227 * 1024;
    code = value > kDeviceLimit ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    found->second.shared_limit = code == CUDA_SUCCESS ? value : found->second.shared_limit;
  }
  return outcome("set_function_attribute", code);
}

// Sets `work` to a launch with copies of the arguments.
CUresult FakeDriver::launch_of(CUfunction function, const LaunchDimensions& dimensions, void** arguments, Work* work) {
  const auto found = functions_.find(function);
  if (needs_context() != CUDA_SUCCESS) {
    return needs_context();
  }
  if (found == functions_.end()) {
    misuse_.emplace_back("a kernel of a module that is not loaded is launched");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (int(dimensions.shared_bytes) > found->second.shared_limit) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const KernelDefinition& definition = found->second.definition;
  std::vector<std::vector<std::byte>> values;
  for (size_t i = 0; i < definition.argument_bytes.size(); ++i) {
    const auto* bytes = static_cast<const std::byte*>(arguments[i]);
    values.emplace_back(bytes, bytes + definition.argument_bytes[i]);
  }
  *work = [kernel = definition.kernel, dimensions, values]() mutable {
    std::vector<void*> pointers;
    std::transform(values.begin(), values.end(), std::back_inserter(pointers), [](auto& value) { return value.data(); });
    kernel(dimensions, pointers.data());
  };
  return CUDA_SUCCESS;
}

Expected<void> FakeDriver::launch_kernel(CUfunction function, const LaunchDimensions& dimensions, CUstream handle,
                                         void** arguments) {
  SCONCE_FAKE_CALL("launch_kernel");
  Work work;
  code = launch_of(function, dimensions, arguments, &work);
  if (code == CUDA_SUCCESS) {
    code = enqueue(handle, std::move(work));
  }
  if (const auto capture = captures_.find(code == CUDA_SUCCESS ? find_stream(handle)->capture : 0);
      capture != captures_.end()) {
    capture->second.kernels.insert(capture->second.nodes.size());
  }
  return outcome("launch_kernel", code);
}

// ---- memory -------------------------------------------------------------------------------------------------------

Expected<void> FakeDriver::allocate(size_t bytes, CUdeviceptr* pointer) {
  SCONCE_FAKE_CALL("allocate");
  code = needs_context();
  if (code == CUDA_SUCCESS) {
    code = forbidden_while_capturing();
  }
  if (code == CUDA_SUCCESS && bytes > kMemoryBytes) {
    code = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (code == CUDA_SUCCESS) {
    auto memory = std::make_unique<std::byte[]>(bytes);
    *pointer = reinterpret_cast<CUdeviceptr>(memory.get());
    allocations_[*pointer] = std::move(memory);
  }
  return outcome("allocate", code);
}

Expected<void> FakeDriver::free(CUdeviceptr pointer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CUresult code = enter("free");
  if (allocations_.count(pointer) == 0) {
    misuse_.emplace_back("memory is freed that was not allocated");
    return outcome("free", CUDA_ERROR_INVALID_VALUE);
  }
  drain_all();  // like the driver: work may still use it
  allocations_.erase(pointer);
  return outcome("free", code);
}

Expected<void> FakeDriver::copy_to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  SCONCE_FAKE_CALL("copy_to_device");
  const auto* first = static_cast<const std::byte*>(from);
  return outcome("copy_to_device", enqueue(stream, [to, values = std::vector<std::byte>(first, first + bytes)] {
                   std::memcpy(reinterpret_cast<void*>(to), values.data(), values.size());
                 }));
}

Expected<void> FakeDriver::copy_to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  SCONCE_FAKE_CALL("copy_to_host");
  return outcome("copy_to_host", enqueue(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); }));
}

Expected<void> FakeDriver::copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  SCONCE_FAKE_CALL("copy_on_device");
  return outcome("copy_on_device", enqueue(stream, [=] {
                   std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
                 }));
}

Expected<void> FakeDriver::memory_info(size_t* free_bytes, size_t* total_bytes) {
  SCONCE_FAKE_CALL("memory_info");
  *free_bytes = kMemoryBytes;
  *total_bytes = kMemoryBytes;
  return {};
}

#undef SCONCE_FAKE_CALL

}  // namespace sconce::cuda
