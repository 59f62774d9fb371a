// Driver: an interface to the part of the CUDA driver that sconce uses. real_driver.h implements it on a machine with a GPU,
// fake/fake_driver.h simulates it in tests. Handles and flags are the driver's own.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace sconce::cuda {

// The outcome of a driver call.
struct [[nodiscard]] Status {
  CUresult code = CUDA_SUCCESS;
  std::string message;  // empty on success, else "cuLaunchKernel: CUDA_ERROR_INVALID_VALUE: invalid argument"

  bool ok() const { return code == CUDA_SUCCESS; }
};

// Ignores a failure that cannot be handled, in destructors: the resource is gone either way.
inline void ignore(const Status&) {}

// A kernel's grid and block in threads, and its dynamic shared memory.
struct LaunchDimensions {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
};

// Each function calls the driver's function of the same name (`launch_kernel` is cuLaunchKernel) and has its rules. Most
// need a current context; see `push_context`. Thread-safe like the driver: a stream capture belongs to one thread.
class Driver {
 public:
  virtual ~Driver() = default;

  virtual Status init() = 0;
  virtual Status driver_version(int* version) = 0;  // 13000 for 13.0
  virtual Status device_count(int* count) = 0;
  virtual Status device(int ordinal, CUdevice* device) = 0;
  virtual Status device_name(CUdevice device, std::string* name) = 0;
  virtual Status device_attribute(CUdevice_attribute attribute, CUdevice device, int* value) = 0;

  // The context that LibTorch uses, too. Counted: each retain needs one release.
  virtual Status retain_primary_context(CUdevice device, CUcontext* context) = 0;
  virtual Status release_primary_context(CUdevice device) = 0;
  virtual Status current_context(CUcontext* context) = 0;
  virtual Status push_context(CUcontext context) = 0;
  virtual Status pop_context() = 0;
  virtual Status synchronize_context() = 0;

  virtual Status load_module(const void* image, CUmodule* module) = 0;
  virtual Status unload_module(CUmodule module) = 0;
  virtual Status module_function(CUmodule module, const char* name, CUfunction* function) = 0;
  virtual Status set_function_attribute(CUfunction function, CUfunction_attribute attribute, int value) = 0;
  // `arguments[i]` points to the i-th argument's value, read before the call returns.
  virtual Status launch_kernel(CUfunction function, const LaunchDimensions& dimensions, CUstream stream,
                               void** arguments) = 0;

  virtual Status create_stream(unsigned flags, CUstream* stream) = 0;
  virtual Status destroy_stream(CUstream stream) = 0;
  virtual Status synchronize_stream(CUstream stream) = 0;
  virtual Status stream_wait_event(CUstream stream, CUevent event) = 0;

  virtual Status create_event(unsigned flags, CUevent* event) = 0;
  virtual Status destroy_event(CUevent event) = 0;
  virtual Status record_event(CUevent event, CUstream stream) = 0;
  virtual Status query_event(CUevent event) = 0;  // CUDA_ERROR_NOT_READY until the work before it is done
  virtual Status synchronize_event(CUevent event) = 0;
  virtual Status elapsed_milliseconds(CUevent start, CUevent end, float* milliseconds) = 0;

  virtual Status begin_capture(CUstream stream, CUstreamCaptureMode mode) = 0;
  virtual Status end_capture(CUstream stream, CUgraph* graph) = 0;
  // `id` names the capture that the stream takes part in; unchanged unless `status` is active.
  virtual Status capture_info(CUstream stream, CUstreamCaptureStatus* status, uint64_t* id) = 0;
  virtual Status exchange_capture_mode(CUstreamCaptureMode* mode) = 0;  // of this thread
  virtual Status graph_node_count(CUgraph graph, size_t* count) = 0;
  virtual Status instantiate_graph(CUgraph graph, unsigned long long flags, CUgraphExec* executable) = 0;
  virtual Status launch_graph(CUgraphExec executable, CUstream stream) = 0;
  virtual Status destroy_graph(CUgraph graph) = 0;
  virtual Status destroy_executable_graph(CUgraphExec executable) = 0;

  virtual Status allocate(size_t bytes, CUdeviceptr* pointer) = 0;
  virtual Status free(CUdeviceptr pointer) = 0;
  virtual Status copy_to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) = 0;
  virtual Status copy_to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream) = 0;
  virtual Status copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) = 0;
  virtual Status memory_info(size_t* free_bytes, size_t* total_bytes) = 0;
};

// Makes a context current for the calling thread during its lifetime. Costs one query if the context is current already.
class ContextScope {
 public:
  ContextScope(Driver& driver, CUcontext context) : driver_(driver) {
    CUcontext current = nullptr;
    status_ = driver.current_context(&current);
    if (status_.ok() && current != context) {
      status_ = driver.push_context(context);
      pushed_ = status_.ok();
    }
  }
  ~ContextScope() {
    if (pushed_) {
      ignore(driver_.pop_context());
    }
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  const Status& status() const { return status_; }

 private:
  Driver& driver_;
  Status status_;
  bool pushed_ = false;
};

}  // namespace sconce::cuda
