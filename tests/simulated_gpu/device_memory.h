// The memory of the simulated GPU.
#pragma once

#include "cuda/fake/fake_driver.h"
#include "cuda/fake/fake_torch_bridge.h"

#include <c10/core/Allocator.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace sconce::testing {

// Allocates host memory for device 0 as LibTorch's caching allocator does on a GPU. Freed blocks serve later allocations of
// their size for their stream from their pool, the newest first. They stay mapped as long as the object lives, so that a
// graph that is launched too late writes into memory that others have by then. New memory is full of kPoison, and so is
// freed memory that belongs to no recording's pool, once its stream has done its work. Thread-safe. Made by
// std::make_shared.
class DeviceMemory final : public c10::Allocator, public std::enable_shared_from_this<DeviceMemory> {
 public:
  static constexpr unsigned char kPoison = 0xff;  // floating-point numbers are NaNs

  DeviceMemory(cuda::FakeDriver& driver, cuda::FakeTorchBridge& bridge) : driver_(&driver), bridge_(&bridge) {}

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  size_t bytes_in_use() const;
  size_t bytes_reserved() const;  // in use or free

  // Uses neither the driver nor the bridge from now on. Tensors may be freed later.
  void close();

 private:
  using Origin = std::pair<std::optional<cuda::PoolId>, CUstream>;  // pool of a recording; stream of the allocation
  struct FreeBytes {
    void operator()(std::byte* bytes) const { operator delete(bytes, std::align_val_t(kGranularity)); }
  };
  struct Block {
    std::unique_ptr<std::byte, FreeBytes> data;
    size_t bytes;
    Origin origin;
    bool is_used = false;
  };
  struct Owner;
  static constexpr size_t kGranularity = 512;

  void free(Block& block);
  // Makes ordinary memory of pools without shares.
  void dissolve_pools();
  size_t sum(bool (*counts)(const Block&)) const;

  cuda::FakeDriver* driver_;
  cuda::FakeTorchBridge* bridge_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::map<std::pair<Origin, size_t>, std::vector<Block*>> free_;
};

}  // namespace sconce::testing
