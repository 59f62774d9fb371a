// Captures as plans use them (plan/device/device.h): the driver's stream capture, LibTorch's current stream, and a private
// pool of LibTorch's allocator, begun and ended together.
//
//   begin            current stream ► allocations go to the pool ► stream capture
//   finish / abandon stream capture ends ► allocations as before ► current stream as before
//
// Each of the three is an object whose destructor undoes it, so a failure undoes exactly what was done before it.
#pragma once

#include "cuda/driver.h"
#include "cuda/torch_bridge.h"
#include "plan/device/device.h"

#include <memory>

namespace sconce::cuda {

// Has a share in its pool as long as it lives: LibTorch's allocator begins no pool again that has lost its last share.
class CudaPool final : public CapturePool {
 public:
  // Throws c10::Error if LibTorch does.
  CudaPool(TorchBridge& bridge, c10::DeviceIndex device) : bridge_(bridge), device_(device), id_(bridge.new_pool()) {
    bridge_.begin_allocating(device_, id_, [](CUstream) { return false; });
    bridge_.end_allocating(device_, id_);
  }
  ~CudaPool() override { bridge_.release(device_, id_); }
  CudaPool(const CudaPool&) = delete;
  CudaPool& operator=(const CudaPool&) = delete;
  c10::DeviceIndex device() const { return device_; }
  PoolId id() const { return id_; }

 private:
  TorchBridge& bridge_;
  const c10::DeviceIndex device_;
  const PoolId id_;
};

// Begins a capture. Driver, bridge and context must outlive the session and its capture.
Expected<std::unique_ptr<CaptureSession>> begin_session(Driver& driver, TorchBridge& bridge, CUcontext context,
                                                        c10::Stream stream, std::shared_ptr<CapturePool> pool);

}  // namespace sconce::cuda
