#include "plan/large_blocks.h"

#include "base/cpu_allocator.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

namespace sconce {
namespace {

struct LargeBlock {
  c10::DataPtr memory;
  size_t bytes;
  uint64_t freed_at = 0;  // number of the call of `keep`
};

class KeptBlocks {
 public:
  static KeptBlocks& instance() {
    static auto* const blocks = new KeptBlocks;  // frames may outlive static objects
    return *blocks;
  }

  // Returns null if no block is large enough, or only one of more than twice the size.
  std::unique_ptr<LargeBlock> take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), [bytes](const auto& block) {
      return block->bytes >= bytes && block->bytes / 2 <= bytes;
    });
    if (found == blocks_.rend()) {
      return nullptr;
    }
    std::unique_ptr<LargeBlock> block = std::move(*found);
    blocks_.erase(std::next(found).base());
    bytes_ -= block->bytes;
    return block;
  }

  void keep(std::unique_ptr<LargeBlock> block) {
    std::vector<std::unique_ptr<LargeBlock>> freed;  // outside of the lock
    if (block->bytes > kMaxBytesKept) {
      return;
    }
    const std::lock_guard lock(mutex_);
    auto end = blocks_.begin();
    block->freed_at = ++time_;
    const auto is_too_much = [&] { return blocks_.end() - end >= kMaxKept || bytes_ + block->bytes > kMaxBytesKept; };
    const auto is_too_old = [&] { return end != blocks_.end() && (*end)->freed_at + kMaxAge < time_; };
    for (; is_too_much() || is_too_old(); ++end) {
      bytes_ -= (*end)->bytes;
      freed.push_back(std::move(*end));
    }
    blocks_.erase(blocks_.begin(), end);
    bytes_ += block->bytes;
    blocks_.push_back(std::move(block));
  }

  size_t free_all() {
    std::vector<std::unique_ptr<LargeBlock>> freed;
    const std::lock_guard lock(mutex_);
    freed.swap(blocks_);
    return std::exchange(bytes_, 0);
  }

 private:
  static constexpr std::ptrdiff_t kMaxKept = 64;

  KeptBlocks() { blocks_.reserve(kMaxKept); }

  std::mutex mutex_;
  std::vector<std::unique_ptr<LargeBlock>> blocks_;  // those freed last at the end
  size_t bytes_ = 0;
  uint64_t time_ = 0;
};

}  // namespace

c10::DataPtr allocate_large(size_t bytes) {
  if (has_allocator_of_user()) {
    return c10::GetCPUAllocator()->allocate(bytes);
  }
  std::unique_ptr<LargeBlock> block = KeptBlocks::instance().take(bytes);
  if (block == nullptr) {
    block = std::make_unique<LargeBlock>(c10::GetDefaultCPUAllocator()->allocate(bytes), bytes);
  }
  void* const data = block->memory.get();
  return {data, block.release(),
          [](void* freed) { KeptBlocks::instance().keep(std::unique_ptr<LargeBlock>(static_cast<LargeBlock*>(freed))); },
          c10::Device(c10::kCPU)};
}

size_t free_kept_blocks() { return KeptBlocks::instance().free_all(); }

}  // namespace sconce
