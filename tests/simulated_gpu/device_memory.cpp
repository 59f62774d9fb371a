#include "tests/simulated_gpu/device_memory.h"

#include <cstring>
#include <new>

namespace sconce::testing {

struct DeviceMemory::Owner {
  std::shared_ptr<DeviceMemory> memory;
  Block& block;

  static void free(void* owner) {
    const std::unique_ptr<Owner> owned(static_cast<Owner*>(owner));
    owned->memory->free(owned->block);
  }
};

c10::DataPtr DeviceMemory::allocate(size_t bytes) {
  const c10::Device device(c10::kCUDA, 0);
  if (bytes == 0) {
    return {nullptr, device};
  }
  const CUstream stream = bridge_->handle(bridge_->current_stream(0));
  const Origin origin{bridge_->pool_serving(stream), stream};
  const size_t rounded = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  const std::lock_guard<std::mutex> lock(mutex_);
  dissolve_pools();
  std::vector<Block*>& free = free_[{origin, rounded}];
  if (free.empty()) {
    auto block = std::make_unique<Block>();
    block->data.reset(static_cast<std::byte*>(operator new(rounded, std::align_val_t(kGranularity))));
    std::memset(block->data.get(), kPoison, rounded);
    block->bytes = rounded;
    block->origin = origin;
    free.push_back(block.get());
    blocks_.push_back(std::move(block));
  }
  Block& block = *free.back();
  free.pop_back();
  block.is_used = true;
  return {block.data.get(), new Owner{shared_from_this(), block}, &Owner::free, device};
}

void DeviceMemory::free(Block& block) {
  const auto [pool, stream] = block.origin;
  if (driver_ != nullptr && !pool) {
    driver_->call_after_work(stream, [data = block.data.get(), bytes = block.bytes] { std::memset(data, kPoison, bytes); });
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  block.is_used = false;
  free_[{block.origin, block.bytes}].push_back(&block);
}

void DeviceMemory::dissolve_pools() {
  for (const auto& block : blocks_) {
    if (block->origin.first && !bridge_->has_shares(*block->origin.first)) {
      std::erase(free_[{block->origin, block->bytes}], block.get());
      block->origin.first.reset();
      if (!block->is_used) {
        free_[{block->origin, block->bytes}].push_back(block.get());
      }
    }
  }
}

size_t DeviceMemory::sum(bool (*counts)(const Block&)) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t bytes = 0;
  for (const auto& block : blocks_) {
    bytes += counts(*block) ? block->bytes : 0;
  }
  return bytes;
}

size_t DeviceMemory::bytes_in_use() const {
  return sum([](const Block& block) { return block.is_used; });
}

size_t DeviceMemory::bytes_reserved() const {
  return sum([](const Block&) { return true; });
}

void DeviceMemory::close() {
  driver_ = nullptr;
  bridge_ = nullptr;
}

}  // namespace sconce::testing
