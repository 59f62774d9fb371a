// Simulates LibTorch's CUDA library on a FakeDriver, for tests without a GPU: one default stream and a few side streams on
// device 0, a current stream per thread, and the use counts of the allocator's pools.
#pragma once

#include "cuda/torch_bridge.h"
#include "tests/simulated_driver/fake_driver.h"

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace sconce::cuda {

class FakeTorchBridge final : public TorchBridge {
 public:
  // Initializes the driver and makes the side streams in it, which the destructor removes.
  explicit FakeTorchBridge(FakeDriver& driver, size_t side_streams = 2);
  ~FakeTorchBridge() override;
  FakeTorchBridge(const FakeTorchBridge&) = delete;
  FakeTorchBridge& operator=(const FakeTorchBridge&) = delete;

  // Returns the pool from which an allocation for this stream would come now; nothing for the allocator's own memory.
  std::optional<PoolId> pool_serving(CUstream stream) const;
  bool has_shares(PoolId pool) const;
  // Describes pools that have shares or are still allocating, and threads whose current stream is not the default one. Empty
  // if there are none.
  std::string leaks() const;

  c10::Stream current_stream(c10::DeviceIndex device) override;
  c10::Stream side_stream(c10::DeviceIndex device) override;
  c10::Stream exchange_stream(c10::Stream stream) override;
  CUstream handle(c10::Stream stream) override;
  c10::Stream stream_of(CUstream stream, c10::DeviceIndex device) override;
  PoolId new_pool() override;
  void begin_allocating(c10::DeviceIndex device, PoolId pool, std::function<bool(CUstream)> serves) override;
  void end_allocating(c10::DeviceIndex device, PoolId pool) override;
  void release(c10::DeviceIndex device, PoolId pool) override;
  RandomState draw(c10::DeviceIndex device, uint64_t numbers) override;
  void put_back(c10::DeviceIndex device, const RandomState& state, uint64_t numbers) override;
  c10::intrusive_ptr<c10d::Backend> make_exchange(c10::intrusive_ptr<c10d::Store> store, int rank, int world,
                                                  std::chrono::milliseconds timeout) override;

 private:
  FakeDriver& driver_;
  mutable std::mutex mutex_;
  // A c10::Stream's id is its index here + 1; 0 is the default stream. Of others it is the handle.
  std::vector<CUstream> side_streams_;
  size_t next_side_stream_ = 0;
  std::map<std::thread::id, c10::Stream> current_;
  unsigned long long next_pool_ = 1;
  std::map<PoolId, std::function<bool(CUstream)>> allocating_;
  std::map<PoolId, size_t> shares_;
  std::set<PoolId> begun_;
};

}  // namespace sconce::cuda
