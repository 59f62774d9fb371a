// Driver: an interface to the part of the CUDA driver that sconce uses. real_driver.h implements it on a machine with a GPU,
// fake/fake_driver.h simulates it in tests. Handles and flags are the driver's own.
#pragma once

#include "base/expected.h"

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace sconce::cuda {

// Ignores a failure that cannot be handled, in destructors: the resource is gone either way.
inline void ignore(const Expected<void>&) {}

// A kernel's grid and block in threads, and its dynamic shared memory.
struct LaunchDimensions {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
};

// Each function calls the driver's function of the same name (`launch_kernel` is cuLaunchKernel) and has its rules. Most
// need a current context; see `push_context`. A refusal reads "cuLaunchKernel: CUDA_ERROR_INVALID_VALUE: invalid argument".
// Thread-safe like the driver: a stream capture belongs to one thread.
class Driver {
 public:
  virtual ~Driver() = default;

  virtual Expected<void> init() = 0;
  virtual Expected<void> driver_version(int* version) = 0;  // 13000 for 13.0
  virtual Expected<void> device_count(int* count) = 0;
  virtual Expected<void> device(int ordinal, CUdevice* device) = 0;
  virtual Expected<void> device_name(CUdevice device, std::string* name) = 0;
  virtual Expected<void> device_attribute(CUdevice_attribute attribute, CUdevice device, int* value) = 0;

  // The context that LibTorch uses, too. Counted: each retain needs one release.
  virtual Expected<void> retain_primary_context(CUdevice device, CUcontext* context) = 0;
  virtual Expected<void> release_primary_context(CUdevice device) = 0;
  virtual Expected<void> current_context(CUcontext* context) = 0;
  virtual Expected<void> push_context(CUcontext context) = 0;
  virtual Expected<void> pop_context() = 0;
  virtual Expected<void> synchronize_context() = 0;

  virtual Expected<void> load_module(const void* image, CUmodule* module) = 0;
  virtual Expected<void> unload_module(CUmodule module) = 0;
  virtual Expected<void> module_function(CUmodule module, const char* name, CUfunction* function) = 0;
  virtual Expected<void> set_function_attribute(CUfunction function, CUfunction_attribute attribute, int value) = 0;
  // `arguments[i]` points to the i-th argument's value, read before the call returns.
  virtual Expected<void> launch_kernel(CUfunction function, const LaunchDimensions& dimensions, CUstream stream,
                                       void** arguments) = 0;

  virtual Expected<void> create_stream(unsigned flags, CUstream* stream) = 0;
  virtual Expected<void> destroy_stream(CUstream stream) = 0;
  virtual Expected<void> synchronize_stream(CUstream stream) = 0;
  virtual Expected<void> stream_wait_event(CUstream stream, CUevent event) = 0;

  virtual Expected<void> create_event(unsigned flags, CUevent* event) = 0;
  virtual Expected<void> destroy_event(CUevent event) = 0;
  virtual Expected<void> record_event(CUevent event, CUstream stream) = 0;
  virtual Expected<bool> query_event(CUevent event) = 0;  // whether the work before it is done
  virtual Expected<void> synchronize_event(CUevent event) = 0;
  virtual Expected<void> elapsed_milliseconds(CUevent start, CUevent end, float* milliseconds) = 0;

  virtual Expected<void> begin_capture(CUstream stream, CUstreamCaptureMode mode) = 0;
  virtual Expected<void> end_capture(CUstream stream, CUgraph* graph) = 0;
  // `id` names the capture that the stream takes part in; unchanged unless `status` is active.
  virtual Expected<void> capture_info(CUstream stream, CUstreamCaptureStatus* status, uint64_t* id) = 0;
  // By cuStreamGetCaptureInfo. `node`: what the stream's next work depends on; null if that is not exactly one node.
  virtual Expected<void> last_captured(CUstream stream, uint64_t* id, CUgraphNode* node) = 0;
  // By cuGraphKernelNodeSetParams. The graph may still be captured.
  virtual Expected<void> set_kernel_node(CUgraphNode node, CUfunction function, const LaunchDimensions& dimensions,
                                         void** arguments) = 0;
  virtual Expected<void> exchange_capture_mode(CUstreamCaptureMode* mode) = 0;  // of this thread
  virtual Expected<void> graph_node_count(CUgraph graph, size_t* count) = 0;
  virtual Expected<void> instantiate_graph(CUgraph graph, unsigned long long flags, CUgraphExec* executable) = 0;
  virtual Expected<void> launch_graph(CUgraphExec executable, CUstream stream) = 0;
  virtual Expected<void> destroy_graph(CUgraph graph) = 0;
  virtual Expected<void> destroy_executable_graph(CUgraphExec executable) = 0;

  virtual Expected<void> allocate(size_t bytes, CUdeviceptr* pointer) = 0;
  virtual Expected<void> free(CUdeviceptr pointer) = 0;
  // The host's memory is read before the call returns, unless it is page-locked.
  virtual Expected<void> copy_to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) = 0;
  virtual Expected<void> copy_to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream) = 0;
  virtual Expected<void> copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) = 0;
  virtual Expected<void> memory_info(size_t* free_bytes, size_t* total_bytes) = 0;
};

// Makes a context current for the calling thread during its lifetime. Costs one query if the context is current already.
class ContextScope {
 public:
  ContextScope(Driver& driver, CUcontext context) : driver_(driver) {
    CUcontext current = nullptr;
    status_ = driver.current_context(&current);
    if (status_ && current != context) {
      status_ = driver.push_context(context);
      pushed_ = static_cast<bool>(status_);
    }
  }
  ~ContextScope() {
    if (pushed_) {
      ignore(driver_.pop_context());
    }
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  const Expected<void>& status() const { return status_; }

 private:
  Driver& driver_;
  Expected<void> status_;
  bool pushed_ = false;
};

// Lets the calling thread allocate, free and load while streams are captured, which breaks captures of other modes: the
// caller's own ones are in the global mode, LibTorch's default. For calls that touch no stream.
class RelaxedMode {
 public:
  explicit RelaxedMode(Driver& driver) : driver_(driver), changed_(driver.exchange_capture_mode(&mode_)) {}
  ~RelaxedMode() {
    if (changed_) {
      ignore(driver_.exchange_capture_mode(&mode_));
    }
  }
  RelaxedMode(const RelaxedMode&) = delete;
  RelaxedMode& operator=(const RelaxedMode&) = delete;

 private:
  Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool changed_;
};

}  // namespace sconce::cuda
