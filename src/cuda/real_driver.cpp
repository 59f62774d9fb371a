#include "cuda/real_driver.h"

#include "base/shared_library.h"

#include <array>

namespace sconce::cuda {
namespace {

// cuda.h maps many names to versioned ones (cuMemAlloc to cuMemAlloc_v2) with macros. The list is expanded through
// these macros, so that type, field and symbol always have the header's version.
// clang-format off
#define SCONCE_DRIVER_FUNCTIONS(X)                                                                                   \
  X(cuGetErrorName) X(cuGetErrorString) X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet)           \
  X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)                \
  X(cuCtxGetCurrent) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxSynchronize) X(cuModuleLoadData)                  \
  X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncSetAttribute) X(cuLaunchKernel) X(cuStreamCreate)                 \
  X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) \
  X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime) X(cuStreamBeginCapture) X(cuStreamEndCapture)          \
  X(cuStreamGetCaptureInfo) X(cuThreadExchangeStreamCaptureMode) X(cuGraphGetNodes) X(cuGraphInstantiate)            \
  X(cuGraphLaunch) X(cuGraphDestroy) X(cuGraphExecDestroy) X(cuGraphKernelNodeSetParams) X(cuMemAlloc) X(cuMemFree)  \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemGetInfo)
// clang-format on

struct DriverFunctions {
#define SCONCE_FIELD(name) decltype(&::name) name = nullptr;
  SCONCE_DRIVER_FUNCTIONS(SCONCE_FIELD)
#undef SCONCE_FIELD
};

class RealDriver final : public Driver {
 public:
  explicit RealDriver(const DriverFunctions& functions) : f_(functions) {}

#define SCONCE_CALL(name, ...) check(#name, f_.name(__VA_ARGS__))
  Expected<void> init() override { return SCONCE_CALL(cuInit, 0); }
  Expected<void> driver_version(int* version) override { return SCONCE_CALL(cuDriverGetVersion, version); }
  Expected<void> device_count(int* count) override { return SCONCE_CALL(cuDeviceGetCount, count); }
  Expected<void> device(int ordinal, CUdevice* device) override { return SCONCE_CALL(cuDeviceGet, device, ordinal); }
  Expected<void> device_name(CUdevice device, std::string* name) override {
    std::array<char, 256> text{};
    Expected<void> status = SCONCE_CALL(cuDeviceGetName, text.data(), int(text.size()), device);
    *name = text.data();
    return status;
  }
  Expected<void> device_attribute(CUdevice_attribute attribute, CUdevice device, int* value) override {
    return SCONCE_CALL(cuDeviceGetAttribute, value, attribute, device);
  }

  Expected<void> retain_primary_context(CUdevice device, CUcontext* context) override {
    return SCONCE_CALL(cuDevicePrimaryCtxRetain, context, device);
  }
  Expected<void> release_primary_context(CUdevice device) override { return SCONCE_CALL(cuDevicePrimaryCtxRelease, device); }
  Expected<void> current_context(CUcontext* context) override { return SCONCE_CALL(cuCtxGetCurrent, context); }
  Expected<void> push_context(CUcontext context) override { return SCONCE_CALL(cuCtxPushCurrent, context); }
  Expected<void> pop_context() override {
    CUcontext popped = nullptr;
    return SCONCE_CALL(cuCtxPopCurrent, &popped);
  }
  Expected<void> synchronize_context() override { return SCONCE_CALL(cuCtxSynchronize); }

  Expected<void> load_module(const void* image, CUmodule* module) override {
    return SCONCE_CALL(cuModuleLoadData, module, image);
  }
  Expected<void> unload_module(CUmodule module) override { return SCONCE_CALL(cuModuleUnload, module); }
  Expected<void> module_function(CUmodule module, const char* name, CUfunction* function) override {
    return SCONCE_CALL(cuModuleGetFunction, function, module, name);
  }
  Expected<void> set_function_attribute(CUfunction function, CUfunction_attribute attribute, int value) override {
    return SCONCE_CALL(cuFuncSetAttribute, function, attribute, value);
  }
  Expected<void> launch_kernel(CUfunction function, const LaunchDimensions& dimensions, CUstream stream,
                               void** arguments) override {
    const auto& [grid, block, shared_bytes] = dimensions;
    return SCONCE_CALL(cuLaunchKernel, function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes,
                       stream, arguments, nullptr);
  }

  Expected<void> create_stream(unsigned flags, CUstream* stream) override {
    return SCONCE_CALL(cuStreamCreate, stream, flags);
  }
  Expected<void> destroy_stream(CUstream stream) override { return SCONCE_CALL(cuStreamDestroy, stream); }
  Expected<void> synchronize_stream(CUstream stream) override { return SCONCE_CALL(cuStreamSynchronize, stream); }
  Expected<void> stream_wait_event(CUstream stream, CUevent event) override {
    return SCONCE_CALL(cuStreamWaitEvent, stream, event, 0);
  }

  Expected<void> create_event(unsigned flags, CUevent* event) override { return SCONCE_CALL(cuEventCreate, event, flags); }
  Expected<void> destroy_event(CUevent event) override { return SCONCE_CALL(cuEventDestroy, event); }
  Expected<void> record_event(CUevent event, CUstream stream) override { return SCONCE_CALL(cuEventRecord, event, stream); }
  Expected<bool> query_event(CUevent event) override {
    const CUresult code = f_.cuEventQuery(event);
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY) {
      return code == CUDA_SUCCESS;
    }
    return check("cuEventQuery", code).refusal();
  }
  Expected<void> synchronize_event(CUevent event) override { return SCONCE_CALL(cuEventSynchronize, event); }
  Expected<void> elapsed_milliseconds(CUevent start, CUevent end, float* milliseconds) override {
    return SCONCE_CALL(cuEventElapsedTime, milliseconds, start, end);
  }

  Expected<void> begin_capture(CUstream stream, CUstreamCaptureMode mode) override {
    return SCONCE_CALL(cuStreamBeginCapture, stream, mode);
  }
  Expected<void> end_capture(CUstream stream, CUgraph* graph) override {
    return SCONCE_CALL(cuStreamEndCapture, stream, graph);
  }
  Expected<void> capture_info(CUstream stream, CUstreamCaptureStatus* status, uint64_t* id) override {
    cuuint64_t capture = 0;
    Expected<void> outcome =
        SCONCE_CALL(cuStreamGetCaptureInfo, stream, status, &capture, nullptr, nullptr, nullptr, nullptr);
    if (outcome && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
      *id = capture;
    }
    return outcome;
  }
  Expected<void> last_captured(CUstream stream, uint64_t* id, CUgraphNode* node) override {
    *node = nullptr;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t capture = 0;
    const CUgraphNode* nodes = nullptr;
    const CUgraphEdgeData* edges = nullptr;  // asked for: without them, edges of programmatic launches are an error
    size_t count = 0;
    Expected<void> outcome = SCONCE_CALL(cuStreamGetCaptureInfo, stream, &status, &capture, nullptr, &nodes, &edges, &count);
    if (outcome && status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1) {
      *id = capture;
      *node = nodes[0];
    }
    return outcome;
  }
  Expected<void> set_kernel_node(CUgraphNode node, CUfunction function, const LaunchDimensions& dimensions,
                                 void** arguments) override {
    CUDA_KERNEL_NODE_PARAMS parameters{};
    parameters.func = function;
    parameters.gridDimX = dimensions.grid[0];
    parameters.gridDimY = dimensions.grid[1];
    parameters.gridDimZ = dimensions.grid[2];
    parameters.blockDimX = dimensions.block[0];
    parameters.blockDimY = dimensions.block[1];
    parameters.blockDimZ = dimensions.block[2];
    parameters.sharedMemBytes = dimensions.shared_bytes;
    parameters.kernelParams = arguments;
    return SCONCE_CALL(cuGraphKernelNodeSetParams, node, &parameters);
  }
  Expected<void> exchange_capture_mode(CUstreamCaptureMode* mode) override {
    return SCONCE_CALL(cuThreadExchangeStreamCaptureMode, mode);
  }
  Expected<void> graph_node_count(CUgraph graph, size_t* count) override {
    return SCONCE_CALL(cuGraphGetNodes, graph, nullptr, count);
  }
  Expected<void> instantiate_graph(CUgraph graph, unsigned long long flags, CUgraphExec* executable) override {
    return SCONCE_CALL(cuGraphInstantiate, executable, graph, flags);
  }
  Expected<void> launch_graph(CUgraphExec executable, CUstream stream) override {
    return SCONCE_CALL(cuGraphLaunch, executable, stream);
  }
  Expected<void> destroy_graph(CUgraph graph) override { return SCONCE_CALL(cuGraphDestroy, graph); }
  Expected<void> destroy_executable_graph(CUgraphExec executable) override {
    return SCONCE_CALL(cuGraphExecDestroy, executable);
  }

  Expected<void> allocate(size_t bytes, CUdeviceptr* pointer) override { return SCONCE_CALL(cuMemAlloc, pointer, bytes); }
  Expected<void> free(CUdeviceptr pointer) override { return SCONCE_CALL(cuMemFree, pointer); }
  Expected<void> copy_to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) override {
    return SCONCE_CALL(cuMemcpyHtoDAsync, to, from, bytes, stream);
  }
  Expected<void> copy_to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream) override {
    return SCONCE_CALL(cuMemcpyDtoHAsync, to, from, bytes, stream);
  }
  Expected<void> copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) override {
    return SCONCE_CALL(cuMemcpyDtoDAsync, to, from, bytes, stream);
  }
  Expected<void> memory_info(size_t* free_bytes, size_t* total_bytes) override {
    return SCONCE_CALL(cuMemGetInfo, free_bytes, total_bytes);
  }
#undef SCONCE_CALL

 private:
  Expected<void> check(const char* function, CUresult code) const {
    if (code == CUDA_SUCCESS) [[likely]] {
      return {};
    }
    const char* name = nullptr;
    const char* text = nullptr;
    f_.cuGetErrorName(code, &name);
    f_.cuGetErrorString(code, &text);
    const std::string number = "error " + std::to_string(int(code));
    return Refusal::because(std::string(function) + ": " + (name != nullptr ? name : number) + ": " +
                            (text != nullptr ? text : "the driver has no text for it"));
  }

  const DriverFunctions f_;
};

}  // namespace

Expected<std::unique_ptr<Driver>> open_driver() {
  const auto library = open_library("libcuda.so.1");
  if (!library) {
    return Refusal::because("no NVIDIA driver on this machine (" + library.refusal().reason + ")");
  }
  DriverFunctions functions;
  std::string missing;
#define SCONCE_TEXT(name) #name
#define SCONCE_LOAD(name)                                                                          \
  functions.name = reinterpret_cast<decltype(functions.name)>(library->symbol(SCONCE_TEXT(name))); \
  if (functions.name == nullptr) missing += std::string(missing.empty() ? "" : ", ") + SCONCE_TEXT(name);
  SCONCE_DRIVER_FUNCTIONS(SCONCE_LOAD)
#undef SCONCE_LOAD
#undef SCONCE_TEXT
  if (!missing.empty()) {
    return Refusal::because("the NVIDIA driver of this machine is too old for CUDA " + std::to_string(CUDA_VERSION / 1000) +
                            ": it lacks " + missing);
  }
  return std::make_unique<RealDriver>(functions);
}

}  // namespace sconce::cuda
