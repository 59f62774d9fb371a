// What plans need of a device other than the CPU: streams, kernels, recordings. Implemented by a back end in a shared
// library of its own (libsconce_cuda), which is loaded when such a device is first asked for.
//
// Memory is not here: tensors and arenas on a device come from LibTorch's allocator (`at::empty`), which knows the
// current stream and the pool of a recording.
#pragma once

#include "base/expected.h"

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace sconce {

// Both sides of the library boundary must agree on this file: count up when it changes.
constexpr int kDeviceInterfaceVersion = 2;

struct LaunchShape {
  std::array<uint32_t, 3> grid = {1, 1, 1};   // blocks
  std::array<uint32_t, 3> block = {1, 1, 1};  // threads in a block
  uint32_t shared_bytes = 0;                  // dynamic shared memory of a block, up to what the device allows
};

// A kernel of a loaded module; alive as long as the module.
class DeviceKernel {
 public:
  virtual ~DeviceKernel() = default;
  virtual const std::string& name() const = 0;
};

// Machine code on one device. Unloaded with its last owner, who must have waited for its kernels.
class DeviceModule {
 public:
  virtual ~DeviceModule() = default;
  // The kernel of this (extern "C") name. Refuses an unknown name.
  virtual Expected<const DeviceKernel*> kernel(const std::string& name) = 0;
};

// A point in a stream's work.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual void record(c10::Stream stream) = 0;  // the point after all that was enqueued so far
  virtual void block(c10::Stream stream) = 0;   // later work of `stream` waits for the point
  virtual void wait() = 0;                      // the calling thread does
  virtual bool done() = 0;
  virtual double seconds_since(DeviceEvent& earlier) = 0;  // both done
};

// Device memory that recordings allocate from. Shared by recordings that never run at the same time.
class RecordingPool {
 public:
  virtual ~RecordingPool() = default;
};

// Recorded work (a CUDA graph). Keeps its pool alive. One thread at a time.
class Recording {
 public:
  virtual ~Recording() = default;
  // Enqueues everything that was recorded, with the addresses of then. Throws c10::Error with the driver's message.
  virtual void replay(c10::Stream stream) = 0;
  virtual size_t nodes() const = 0;  // kernels, copies, …
};

// While it lives, its stream is the calling thread's current one, and work that the thread sends to it is noted down
// and not run. Destroyed unfinished, it leaves the streams and the allocator as they were.
class RecordingSession {
 public:
  virtual ~RecordingSession() = default;
  // Ends the session either way. Refuses when something that cannot be recorded happened, with the driver's message.
  virtual Expected<std::unique_ptr<Recording>> finish() = 0;
};

// One kind of device. Functions that return void throw c10::Error with the driver's message when the driver fails;
// streams are LibTorch's, so that operators and our kernels share them. Thread-safe.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual c10::DeviceType type() const = 0;

  // How many there are to send work to; when 0, `why_unavailable` says why in one sentence, and only `compile` works.
  virtual int device_count() const = 0;
  virtual const std::string& why_unavailable() const = 0;
  virtual std::string name(c10::DeviceIndex device) const = 0;          // "NVIDIA H200"
  virtual std::string architecture(c10::DeviceIndex device) const = 0;  // "sm_90", for `compile`

  virtual void synchronize(c10::DeviceIndex device) = 0;
  virtual c10::Stream current_stream(c10::DeviceIndex device) = 0;
  virtual c10::Stream side_stream(c10::DeviceIndex device) = 0;         // from LibTorch's pool; never the default stream
  virtual c10::Stream exchange_current_stream(c10::Stream stream) = 0;  // of this thread; returns the one before
  virtual std::unique_ptr<DeviceEvent> make_event(c10::DeviceIndex device) = 0;

  // Source text to machine code for an architecture; needs no device. The refusal carries the compiler's log.
  virtual Expected<std::string> compile(const std::string& text, const std::string& architecture) = 0;
  virtual Expected<std::shared_ptr<DeviceModule>> load_module(c10::DeviceIndex device, const std::string& machine_code) = 0;
  // `arguments[i]` points to the value of the kernel's i-th parameter; read before the call returns.
  virtual void launch(const DeviceKernel& kernel, const LaunchShape& shape, c10::Stream stream,
                      std::span<void* const> arguments) = 0;

  virtual std::shared_ptr<RecordingPool> make_recording_pool(c10::DeviceIndex device) = 0;
  // `stream` must not be the default stream, and no other recording may use `pool` at this moment.
  virtual Expected<std::unique_ptr<RecordingSession>> begin_recording(c10::Stream stream,
                                                                      std::shared_ptr<RecordingPool> pool) = 0;
};

// The runtime of this kind of device, loaded at the first call. Refuses kinds that sconce has no back end for, and says
// what is wrong where the back end cannot be loaded. A runtime without any device is no refusal: see `device_count`.
Expected<DeviceRuntime*> find_device_runtime(c10::DeviceType type);

// Makes a stream the calling thread's current one while it lives.
class CurrentStream {
 public:
  CurrentStream(DeviceRuntime& runtime, c10::Stream stream)
      : runtime_(runtime), before_(runtime.exchange_current_stream(stream)) {}
  ~CurrentStream() { runtime_.exchange_current_stream(before_); }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

 private:
  DeviceRuntime& runtime_;
  c10::Stream before_;
};

// Records what `work` sends to the current stream, which is `stream` meanwhile. Recording runs nothing: replay for the
// result. Run the work once on `stream` before, so that libraries have set themselves up (handles, workspaces).
// What `work` throws becomes the refusal's reason, for whatever cannot be recorded throws (random operators, reading a
// value back): streams and allocator are as before, and the caller runs the work as usual.
Expected<std::unique_ptr<Recording>> record(DeviceRuntime& runtime, c10::Stream stream, std::shared_ptr<RecordingPool> pool,
                                            const std::function<void()>& work);

}  // namespace sconce
