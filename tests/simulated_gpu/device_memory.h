// The memory of the simulated GPU.
#pragma once

#include "tests/simulated_driver/fake_driver.h"
#include "tests/simulated_driver/fake_torch_bridge.h"

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace sconce::testing {

// Allocates host memory for device 0 as LibTorch's caching allocator does on a GPU. Freed blocks serve later allocations of
// their size for their stream from their pool, the newest first. They stay mapped as long as the object lives, so that a
// graph that is launched too late writes into memory that others have by then. New memory is full of kPoison, and so is
// freed memory that belongs to no capture's pool, once its stream has done its work. Thread-safe. Made by
// std::make_shared.
class DeviceMemory final : public c10::Allocator, public std::enable_shared_from_this<DeviceMemory> {
 public:
  static constexpr unsigned char kPoison = 0xff;  // floating-point numbers are NaNs

  DeviceMemory(cuda::FakeDriver& driver, cuda::FakeTorchBridge& bridge) : driver_(&driver), bridge_(&bridge) {}

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  // Lets nothing else have the memory, once it is freed, before the stream has done its work until then.
  void record_use(const c10::DataPtr& data, CUstream stream);

  size_t bytes_in_use() const;
  size_t bytes_reserved() const;  // in use or free

  // Does not use the driver from now on, so that memory can be freed later. None can be allocated.
  void close();

 private:
  using Origin = std::pair<std::optional<cuda::PoolId>, CUstream>;  // pool of a capture; stream of the allocation
  struct FreeBytes {
    void operator()(std::byte* bytes) const { operator delete(bytes, std::align_val_t(kGranularity)); }
  };
  struct Block {
    std::unique_ptr<std::byte, FreeBytes> data;
    size_t bytes;
    Origin origin;
    std::set<CUstream> uses;  // by other streams
    bool is_used = false;
    uint64_t owners = 0;  // so far
    bool is_of_dissolved_pool = false;
  };
  struct Owner;
  static constexpr size_t kGranularity = 512;

  Block& fresh_block(const Origin& origin, size_t bytes);
  void free(Block& block);
  void make_free(Block& block);
  // Makes the memory of pools without shares available to all.
  void dissolve_pools();
  size_t sum(bool (*counts)(const Block&)) const;

  std::mutex closing_;  // of `driver_`; taken before the driver's
  cuda::FakeDriver* driver_;
  cuda::FakeTorchBridge* const bridge_;
  mutable std::mutex mutex_;  // of what follows; taken after the driver's and the bridge's
  std::vector<std::unique_ptr<Block>> blocks_;
  std::set<cuda::PoolId> pools_;  // of blocks
  std::map<std::pair<Origin, size_t>, std::vector<Block*>> free_;
  std::map<size_t, std::vector<Block*>> returned_;  // by dissolved pools, as if to the driver
};

}  // namespace sconce::testing
