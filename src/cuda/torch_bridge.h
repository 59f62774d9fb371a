// The part of LibTorch's CUDA library that libsconce_cuda uses: the current stream, and the source of memory during a
// capture. An interface, so that tests run without a GPU.
#pragma once

#include "base/expected.h"
#include "plan/device/device.h"

#include <c10/core/Stream.h>

#include <cuda.h>

#include <functional>
#include <memory>
#include <utility>

namespace sconce::cuda {

// Names a private pool of LibTorch's caching allocator.
using PoolId = std::pair<unsigned long long, unsigned long long>;

// Functions throw c10::Error if LibTorch does. Thread-safe; the current stream is the calling thread's.
class TorchBridge {
 public:
  virtual ~TorchBridge() = default;
  virtual c10::Stream current_stream(c10::DeviceIndex device) = 0;
  virtual c10::Stream side_stream(c10::DeviceIndex device) = 0;
  virtual c10::Stream exchange_stream(c10::Stream stream) = 0;  // returns the previous one
  virtual CUstream handle(c10::Stream stream) = 0;
  virtual c10::Stream stream_of(CUstream stream, c10::DeviceIndex device) = 0;  // of a stream that LibTorch did not make

  // From `begin` to `end`, the pool serves allocations for streams for which `serves` returns true. Each `begin` also
  // takes a share in the pool, which `release` returns. A pool that has lost its last share returns its memory to the
  // allocator, and cannot be begun again.
  virtual PoolId new_pool() = 0;
  virtual void begin_allocating(c10::DeviceIndex device, PoolId pool, std::function<bool(CUstream)> serves) = 0;
  virtual void end_allocating(c10::DeviceIndex device, PoolId pool) = 0;
  virtual void release(c10::DeviceIndex device, PoolId pool) = 0;

  // See DeviceRuntime.
  virtual RandomState draw(c10::DeviceIndex device, uint64_t numbers) = 0;
  virtual void put_back(c10::DeviceIndex device, const RandomState& state, uint64_t numbers) = 0;
  virtual c10::intrusive_ptr<c10d::Backend> make_exchange(c10::intrusive_ptr<c10d::Store> store, int rank, int world,
                                                          std::chrono::milliseconds timeout) = 0;
};

// Refuses when LibTorch's CUDA half is not in the process (libtorch_cuda.h loads it).
Expected<std::unique_ptr<TorchBridge>> make_torch_bridge();

}  // namespace sconce::cuda
