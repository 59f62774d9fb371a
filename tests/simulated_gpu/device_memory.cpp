#include "tests/simulated_gpu/device_memory.h"

#include <atomic>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>

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
  dissolve_pools();
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Block*>& free = free_[{origin, rounded}];
  if (free.empty()) {
    free.push_back(&fresh_block(origin, rounded));
  }
  Block& block = *free.back();
  free.pop_back();
  block.is_used = true;
  ++block.owners;
  return {block.data.get(), new Owner{shared_from_this(), block}, &Owner::free, device};
}

DeviceMemory::Block& DeviceMemory::fresh_block(const Origin& origin, size_t bytes) {
  std::vector<Block*>& returned = returned_[bytes];
  if (returned.empty()) {
    auto block = std::make_unique<Block>();
    block->data.reset(static_cast<std::byte*>(operator new(bytes, std::align_val_t(kGranularity))));
    block->bytes = bytes;
    returned.push_back(block.get());
    blocks_.push_back(std::move(block));
  }
  Block& block = *returned.back();
  returned.pop_back();
  std::memset(block.data.get(), kPoison, bytes);
  block.origin = origin;
  block.is_of_dissolved_pool = false;
  if (origin.first) {
    pools_.insert(*origin.first);
  }
  return block;
}

void DeviceMemory::record_use(const c10::DataPtr& data, CUstream stream) {
  if (data.get_deleter() == &Owner::free) {
    const std::lock_guard<std::mutex> lock(mutex_);
    static_cast<Owner*>(data.get_context())->block.uses.insert(stream);
  }
}

void DeviceMemory::free(Block& block) {
  const std::lock_guard<std::mutex> lock(closing_);
  const auto [origin, uses, owners] = [&] {
    const std::lock_guard<std::mutex> reading(mutex_);
    return std::tuple(block.origin, std::exchange(block.uses, {}), block.owners);
  }();
  const auto& [pool, stream] = origin;
  std::set<CUstream> streams = uses;
  if (driver_ == nullptr || streams.empty()) {
    if (driver_ != nullptr && !pool) {
      // An operator on another thread may have the block by then, and runs at once.
      driver_->call_after_work(stream, [memory = shared_from_this(), &block, owners] {
        const std::lock_guard<std::mutex> writing(memory->mutex_);
        if (block.owners == owners) {
          std::memset(block.data.get(), kPoison, block.bytes);
        }
      });
    }
    make_free(block);
    return;
  }
  streams.insert(stream);
  const auto waiting = std::make_shared<std::atomic<size_t>>(streams.size());
  for (const CUstream each : streams) {
    const auto reached = [memory = shared_from_this(), &block, waiting, poisons = !pool] {
      if (--*waiting == 0) {
        if (poisons) {
          std::memset(block.data.get(), kPoison, block.bytes);
        }
        memory->make_free(block);
      }
    };
    if (!driver_->call_after_work(each, reached)) {
      reached();
    }
  }
}

void DeviceMemory::make_free(Block& block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  block.is_used = false;
  (block.is_of_dissolved_pool ? returned_[block.bytes] : free_[{block.origin, block.bytes}]).push_back(&block);
}

void DeviceMemory::dissolve_pools() {
  const auto has_shares = [this](const cuda::PoolId& pool) { return bridge_->has_shares(pool); };
  std::set<cuda::PoolId> dissolved;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    dissolved = pools_;
  }
  std::erase_if(dissolved, has_shares);  // without the lock
  if (dissolved.empty()) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& block : blocks_) {
    if (block->origin.first && dissolved.contains(*block->origin.first)) {
      block->is_of_dissolved_pool = true;
      if (std::erase(free_[{block->origin, block->bytes}], block.get()) != 0) {
        returned_[block->bytes].push_back(block.get());
      }
      block->origin.first.reset();
    }
  }
  std::erase_if(pools_, [&](const cuda::PoolId& pool) { return dissolved.contains(pool); });
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
  const std::lock_guard<std::mutex> lock(closing_);
  driver_ = nullptr;
}

}  // namespace sconce::testing
