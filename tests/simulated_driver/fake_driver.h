// A CUDA driver simulated on the CPU, for tests without a GPU: streams, events, captures and graphs with the driver's
// rules, kernels that are C++ functions, failures on demand.
//
// Queued work runs only at a synchronization, so a missing synchronization shows as a missing result. Device memory is host
// memory. Thread-safe; kernels must not call the driver.
#pragma once

#include "cuda/driver.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace sconce::cuda {

class FakeDriver final : public Driver {
 public:
  explicit FakeDriver(int devices = 1) : device_count_(devices) {}

  // ---- for tests ------------------------------------------------------------------------------------------------
  // Defines a kernel, which every loaded module then has. `arguments` points to copies of the launch's values.
  using Kernel = std::function<void(const LaunchDimensions& dimensions, void* const* arguments)>;
  void define_kernel(const std::string& name, std::vector<size_t> argument_bytes, Kernel kernel);
  struct KernelDefinition {
    std::vector<size_t> argument_bytes;
    Kernel kernel;
  };
  // Defines the other kernels of modules: returns the one of this name in a module with this text, if there is one. Must not
  // call the driver.
  using KernelsOfText = std::function<std::optional<KernelDefinition>(const std::string& text, const std::string& name)>;
  void define_kernels(KernelsOfText kernels);
  // Returns what is accepted as machine code, which ends with the text.
  static std::string image(const std::string& text = {});

  // ---- work of operators, which the host does as if it were the device's; it has the rules of a kernel's launch
  // Returns whether the caller can do the work at once: the stream has done all that it was given. If not, the stream is
  // captured, and `enqueue_host_work` takes the work.
  Expected<bool> begin_host_work(CUstream stream);
  Expected<void> enqueue_host_work(CUstream stream, std::function<void()> work);
  // Lets the host do something after the stream's work so far, which is no work of the device. Returns false, and does not
  // do it, if the stream is captured or unknown.
  bool call_after_work(CUstream stream, std::function<void()> action);

  // Makes the n-th call from now on (1 is the next), or the n-th call of one function, fail with this code. A failing call
  // has no effect, except that calls which release something (destroy, free, pop, end of a capture) release it. Exchanging
  // the capture mode never fails, because it only sets a variable of the thread.
  void fail_call(size_t n, CUresult code);
  void fail_call_of(const std::string& function, size_t n, CUresult code);
  void fail_nothing();
  bool has_failed() const;  // a call that was made to fail was made, since `fail_nothing`

  std::vector<std::string> calls() const;        // names of all calls so far
  std::vector<std::string> misuse() const;       // mistakes that a real driver would allow, or crash on
  std::string leaks() const;                     // everything not released, or empty
  static std::string error_text(CUresult code);  // how a refusal names the error

  // ---- Driver ---------------------------------------------------------------------------------------------------
  Expected<void> init() override;
  Expected<void> driver_version(int* version) override;
  Expected<void> device_count(int* count) override;
  Expected<void> device(int ordinal, CUdevice* device) override;
  Expected<void> device_name(CUdevice device, std::string* name) override;
  Expected<void> device_attribute(CUdevice_attribute attribute, CUdevice device, int* value) override;
  Expected<void> retain_primary_context(CUdevice device, CUcontext* context) override;
  Expected<void> release_primary_context(CUdevice device) override;
  Expected<void> current_context(CUcontext* context) override;
  Expected<void> push_context(CUcontext context) override;
  Expected<void> pop_context() override;
  Expected<void> synchronize_context() override;
  Expected<void> load_module(const void* image, CUmodule* module) override;
  Expected<void> unload_module(CUmodule module) override;
  Expected<void> module_function(CUmodule module, const char* name, CUfunction* function) override;
  Expected<void> set_function_attribute(CUfunction function, CUfunction_attribute attribute, int value) override;
  Expected<void> launch_kernel(CUfunction function, const LaunchDimensions& dimensions, CUstream stream,
                               void** arguments) override;
  Expected<void> create_stream(unsigned flags, CUstream* stream) override;
  Expected<void> destroy_stream(CUstream stream) override;
  Expected<void> synchronize_stream(CUstream stream) override;
  Expected<void> stream_wait_event(CUstream stream, CUevent event) override;
  Expected<void> create_event(unsigned flags, CUevent* event) override;
  Expected<void> destroy_event(CUevent event) override;
  Expected<void> record_event(CUevent event, CUstream stream) override;
  Expected<bool> query_event(CUevent event) override;
  Expected<void> synchronize_event(CUevent event) override;
  Expected<void> elapsed_milliseconds(CUevent start, CUevent end, float* milliseconds) override;
  Expected<void> begin_capture(CUstream stream, CUstreamCaptureMode mode) override;
  Expected<void> end_capture(CUstream stream, CUgraph* graph) override;
  Expected<void> capture_info(CUstream stream, CUstreamCaptureStatus* status, uint64_t* id) override;
  Expected<void> last_captured(CUstream stream, uint64_t* id, CUgraphNode* node) override;
  Expected<void> set_kernel_node(CUgraphNode node, CUfunction function, const LaunchDimensions& dimensions,
                                 void** arguments) override;
  Expected<void> exchange_capture_mode(CUstreamCaptureMode* mode) override;
  Expected<void> graph_node_count(CUgraph graph, size_t* count) override;
  Expected<void> instantiate_graph(CUgraph graph, unsigned long long flags, CUgraphExec* executable) override;
  Expected<void> launch_graph(CUgraphExec executable, CUstream stream) override;
  Expected<void> destroy_graph(CUgraph graph) override;
  Expected<void> destroy_executable_graph(CUgraphExec executable) override;
  Expected<void> allocate(size_t bytes, CUdeviceptr* pointer) override;
  Expected<void> free(CUdeviceptr pointer) override;
  Expected<void> copy_to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) override;
  Expected<void> copy_to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream) override;
  Expected<void> copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) override;
  Expected<void> memory_info(size_t* free_bytes, size_t* total_bytes) override;

 private:
  using Work = std::function<void()>;
  struct Operation {  // in a stream's queue
    Work work;
    CUevent record = nullptr;
    uint64_t version = 0;
    std::optional<CUstream> awaited;  // up to its operation at `position`
    uint64_t position = 0;
  };
  struct Capture {
    CUstream origin = nullptr;
    CUstreamCaptureMode mode{};
    std::thread::id thread;
    bool invalidated = false;
    std::vector<Work> nodes;
    std::map<CUstream, size_t> position;  // by stream in the capture: the number of its nodes
    std::map<CUstream, size_t> joined;    // by stream: how many of them another stream has waited for
    std::map<CUstream, size_t> last;      // by stream: its last node, counted from 1; 0 if it waits for others, too
    std::set<size_t> kernels;             // nodes that are launches, counted from 1
  };
  struct Stream {
    uint64_t push(Operation operation) {  // returns its position: 1 for the stream's first
      queue.push_back(std::move(operation));
      return begun + queue.size();
    }
    std::deque<Operation> queue;
    uint64_t begun = 0;  // operations that have left the queue
    uint64_t capture = 0;
    bool is_blocking = true;  // waits for the default stream, and that for it
  };
  struct Event {
    bool is_timed = true;
    uint64_t recorded = 0;  // version
    uint64_t completed = 0;
    CUstream stream = nullptr;  // of the last record
    uint64_t queued = 0;        // position of that record
    uint64_t tick = 0;
    uint64_t capture = 0;  // recorded inside this capture, at `position` of `stream`
    size_t position = 0;
  };
  struct Module {
    std::string text;
    std::set<CUfunction> functions;
  };
  struct Function {
    KernelDefinition definition;
    int shared_limit = 48 * 1024;
  };
  struct InjectedFailure {
    std::string function;  // empty: any
    size_t countdown;
    CUresult code;
  };

  // Called first by every function, under the lock. Logs the call and returns the failure to report, if any.
  CUresult enter(const char* function);
  CUresult needs_context() const;
  static Expected<void> outcome(const char* function, CUresult code);
  template <typename Handle>
  Handle new_handle() {
    return reinterpret_cast<Handle>(next_handle_ += 16);
  }

  CUresult enqueue(CUstream stream, Work work);
  CUresult launch_of(CUfunction function, const LaunchDimensions& dimensions, void** arguments, Work* work);
  CUresult forbidden_while_capturing();  // for calls that may allocate, free or load
  void invalidate(Capture& capture) { capture.invalidated = true; }
  void drain(CUstream stream, uint64_t until = UINT64_MAX);  // until its operation at this position is done
  void drain_all();
  Stream* find_stream(CUstream stream);
  bool captures_on_this_thread() const;
  bool invalidate_blocking_captures();

  mutable std::mutex mutex_;
  const int device_count_;
  bool initialized_ = false;
  uintptr_t next_handle_ = 0x1000;
  uint64_t next_capture_ = 1;
  uint64_t clock_ = 0;  // one tick for each operation that ran
  std::vector<std::string> calls_;
  std::vector<std::string> misuse_;
  std::vector<InjectedFailure> failures_;
  std::map<std::string, KernelDefinition> definitions_;
  std::map<CUdevice, size_t> retained_;
  std::map<std::thread::id, std::vector<CUcontext>> contexts_;
  std::map<std::thread::id, CUstreamCaptureMode> modes_;
  KernelsOfText kernels_of_text_;
  std::map<CUmodule, Module> modules_;
  std::map<CUfunction, Function> functions_;
  std::map<CUstream, Stream> streams_{{nullptr, {}}};
  std::map<CUevent, Event> events_;
  std::map<uint64_t, Capture> captures_;
  std::map<CUgraph, std::vector<Work>> graphs_;
  std::map<CUgraphExec, std::vector<Work>> executables_;
  std::map<CUdeviceptr, std::unique_ptr<std::byte[]>> allocations_;
};

}  // namespace sconce::cuda
