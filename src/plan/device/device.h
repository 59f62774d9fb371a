// The interface to devices other than the CPU: streams, kernels, captures. A library of its own (libsconce_cuda)
// implements it, which is loaded on first use of such a device.
//
// Memory is not part of it: tensors and arenas on a device come from LibTorch's allocator (`at::empty`), which knows the
// current stream and the pool of a capture.
#pragma once

#include "base/expected.h"

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace sconce {

class KernelBackend;  // fusion/program/kernel_backend.h

// Increment when this file changes: both sides of the library boundary must agree on it.
constexpr int kDeviceInterfaceVersion = 9;

struct LaunchShape {
  std::array<uint32_t, 3> grid = {1, 1, 1};   // blocks
  std::array<uint32_t, 3> block = {1, 1, 1};  // threads in a block
  uint32_t shared_bytes = 0;                  // dynamic shared memory of a block, up to the device's limit
};

// The limits of one launch on a device. The defaults serve to write kernels where there is no device.
struct DeviceLimits {
  uint32_t multiprocessors = 132;
  uint32_t multiprocessor_threads = 2048;
  uint32_t warp_threads = 32;
  uint32_t block_threads = 1024;      // the most
  uint32_t shared_bytes = 48 * 1024;  // the most of a block that a kernel may ask for
};

// The state of LibTorch's random number generator for a device.
struct RandomState {
  uint64_t seed = 0;
  uint64_t offset = 0;  // what each thread of a kernel skips
};

// A kernel of a loaded module, valid as long as the module.
class DeviceKernel {
 public:
  virtual ~DeviceKernel() = default;
  virtual const std::string& name() const = 0;
};

// Machine code on one device. Unloaded with its last owner, which must first wait for its kernels.
class DeviceModule {
 public:
  virtual ~DeviceModule() = default;
  // Returns the kernel of this (extern "C") name. Refuses an unknown name.
  virtual Expected<const DeviceKernel*> kernel(const std::string& name) = 0;
};

// A point in a stream's work.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual void record(c10::Stream stream) = 0;  // sets the point after all work enqueued so far
  virtual void block(c10::Stream stream) = 0;   // makes later work of `stream` wait for the point
  virtual void wait() = 0;                      // makes the calling thread wait for it
  virtual bool done() = 0;
  virtual double seconds_since(DeviceEvent& earlier) = 0;  // requires that both are done
};

// Device memory that captures allocate from. Shared by captures that never run at the same time.
class CapturePool {
 public:
  virtual ~CapturePool() = default;
};

// Captured work (a CUDA graph). Keeps its pool alive. One thread at a time.
class Capture {
 public:
  virtual ~Capture() = default;
  // Enqueues everything that was captured, with the captured addresses. Throws c10::Error with the driver's message.
  virtual void replay(c10::Stream stream) = 0;
  virtual size_t nodes() const = 0;  // kernels, copies, …
};

// During its lifetime its stream is the calling thread's current one, and work that the thread sends to it is captured and
// not run. If it is destroyed unfinished, it restores the streams and the allocator.
class CaptureSession {
 public:
  virtual ~CaptureSession() = default;
  // Ends the session, whatever the outcome. Refuses, with the driver's message, if something that cannot be captured
  // happened.
  virtual Expected<std::unique_ptr<Capture>> finish() = 0;
};

// One piece of work in a capture that is still made.
struct CapturedWork {
  uint64_t capture = 0;  // differs from that of every other capture
  void* node = nullptr;
  bool operator==(const CapturedWork&) const = default;
};

// One kind of device. A device that computes at once, on one stream, needs to say its type and how many there are; all else
// has a default. Functions that return void throw c10::Error with the driver's message if the driver fails. Streams are
// LibTorch's, so that operators and sconce's kernels share them. Thread-safe.
class DeviceRuntime {
 public:
  DeviceRuntime();
  virtual ~DeviceRuntime() = default;
  DeviceRuntime(const DeviceRuntime&) = delete;
  DeviceRuntime& operator=(const DeviceRuntime&) = delete;
  // Differs from the id of every other runtime that the process has or had.
  uint64_t id() const { return id_; }
  virtual c10::DeviceType type() const = 0;

  // Returns the number of usable devices. If it is 0, `why_unavailable` says why in one sentence, and only `compile` works.
  virtual int device_count() const = 0;
  virtual const std::string& why_unavailable() const;
  virtual std::string name(c10::DeviceIndex device) const;              // "NVIDIA H200"
  virtual size_t used_bytes(c10::DeviceIndex /*device*/) { return 0; }  // of the device's memory, by all processes

  // ---- streams: by default each device has its default stream alone, whose work is done when a call returns
  virtual void synchronize(c10::DeviceIndex /*device*/) {}
  virtual c10::Stream current_stream(c10::DeviceIndex device);
  virtual c10::Stream side_stream(
      c10::DeviceIndex device);  // from LibTorch's pool; never the default stream, if there are others
  // Returns a stream that nobody else has until it is given back. LibTorch gives a stream of its pool to several callers,
  // and a capture would take the work of the others.
  virtual c10::Stream take_stream(c10::DeviceIndex device);
  virtual void give_back(c10::Stream /*stream*/) {}
  virtual c10::Stream exchange_current_stream(c10::Stream stream);  // of this thread; returns the previous one
  // `is_timed`: for `seconds_since`. Others are cheaper.
  virtual std::unique_ptr<DeviceEvent> make_event(c10::DeviceIndex device, bool is_timed);

  // ---- kernels: by default there are none
  // Returns what compiles and runs kernels in the device's own way; null if nothing does. Those of `is_blocking` are
  // compiled before the first run, others in the background.
  virtual std::shared_ptr<const KernelBackend> make_nests(c10::DeviceIndex device, bool is_blocking);
  // Returns whether `compile` takes text as fusion/cuda writes it: C++ for a grid of threads. Then sconce writes the
  // kernels.
  virtual bool compiles_text() const { return false; }
  virtual std::string architecture(c10::DeviceIndex /*device*/) const { return {}; }  // "sm_90", for `compile`
  virtual DeviceLimits limits(c10::DeviceIndex /*device*/) const { return {}; }
  // Compiles source text to machine code for an architecture; needs no device. Floating-point operations run as written: a
  // product and a sum are fused only by a call of `fma`. A refusal contains the compiler's log.
  virtual Expected<std::string> compile(const std::string& text, const std::string& architecture);
  virtual Expected<std::shared_ptr<DeviceModule>> load_module(c10::DeviceIndex device, const std::string& machine_code);
  // `arguments[i]` points to the value of the kernel's i-th parameter; read before the call returns.
  virtual void launch(const DeviceKernel& kernel, const LaunchShape& shape, c10::Stream stream,
                      std::span<void* const> arguments);

  // ---- captures: by default the device captures nothing
  virtual bool captures() const { return false; }
  virtual std::shared_ptr<CapturePool> make_capture_pool(c10::DeviceIndex device);
  // Returns whether somebody captures the stream, or may do so.
  virtual bool is_capturing(c10::Stream /*stream*/) { return false; }
  // `stream` must not be the default stream, and no other capture may use `pool` at this moment.
  virtual Expected<std::unique_ptr<CaptureSession>> begin_capture(c10::Stream stream, std::shared_ptr<CapturePool> pool);
  // Returns the last work that was sent to the stream, if it is captured and what comes next waits for nothing else.
  virtual std::optional<CapturedWork> last_captured(c10::Stream /*stream*/) { return std::nullopt; }
  // Gives a launch in a capture another kernel, shape and arguments.
  virtual void change_launch(const CapturedWork& launch, const DeviceKernel& kernel, const LaunchShape& shape,
                             c10::DeviceIndex device, std::span<void* const> arguments);
  // Copies bytes of the stream's device, as work of the stream.
  virtual void copy(void* to, const void* from, size_t bytes, c10::Stream stream);
  // Copies a few bytes of the host to the stream's device, as work of the stream. They are read before the call returns.
  virtual void copy_from_host(void* to, const void* from, size_t bytes, c10::Stream stream);

  // ---- random numbers that kernels draw: by default none do
  // Returns the generator's state, and moves its offset on as an operator whose threads draw so many numbers each.
  virtual RandomState draw(c10::DeviceIndex device, uint64_t numbers);
  // Moves the offset back to that of the state, which `draw` has returned, unless something has drawn since.
  virtual void put_back(c10::DeviceIndex device, const RandomState& state, uint64_t numbers);

  // ---- several processes: by default there is nothing for them
  // Returns what exchanges tensors on these devices between the ranks that meet in the store. Throws c10::Error with the
  // reason if nothing does.
  virtual c10::intrusive_ptr<c10d::Backend> make_exchange(c10::intrusive_ptr<c10d::Store> store, int rank, int world,
                                                          std::chrono::milliseconds timeout);

 private:
  const uint64_t id_;
};

// Returns the runtime of this kind of device, which is loaded at the first call. Refuses kinds without a library, and
// libraries that cannot be loaded. A runtime without a usable device is not a refusal: see `device_count`.
Expected<DeviceRuntime*> find_device_runtime(c10::DeviceType type);

// Before anything is put on `device`: makes LibTorch ready for it (`load_cuda_early` for a CUDA device, nothing for others).
// Throws c10::Error with one sentence, the reason, when there is no such device.
void make_available(const c10::Device& device);

// Takes the place of the runtime for its kind of device while it lives: one over a simulated driver, in tests. One at a
// time.
class DeviceRuntimeInPlace {
 public:
  explicit DeviceRuntimeInPlace(DeviceRuntime& runtime);
  ~DeviceRuntimeInPlace();
  DeviceRuntimeInPlace(const DeviceRuntimeInPlace&) = delete;
  DeviceRuntimeInPlace& operator=(const DeviceRuntimeInPlace&) = delete;
};

// Makes a stream the calling thread's current one during its lifetime.
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

// Captures the work that `work` sends to the current stream, which is `stream` meanwhile. Capture runs nothing; replay the
// capture for the result. Run the work once on `stream` before, so that libraries create their handles and workspaces.
//
// Operations that cannot be captured throw (random operators, reading a value back). What `work` throws becomes the
// refusal's reason; streams and allocator are restored, and the caller can run the work as usual.
Expected<std::unique_ptr<Capture>> capture_work(DeviceRuntime& runtime, c10::Stream stream,
                                                std::shared_ptr<CapturePool> pool, const std::function<void()>& work);

}  // namespace sconce
