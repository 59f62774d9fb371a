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
    count(*block);
    return block;
  }

  // Notes that a new block is in use.
  void add(const LargeBlock& block) {
    const std::lock_guard lock(mutex_);
    count(block);
  }

  void keep(std::unique_ptr<LargeBlock> block) {
    std::vector<std::unique_ptr<LargeBlock>> freed;  // outside of the lock
    const std::lock_guard lock(mutex_);
    in_use_ -= block->bytes;
    if (++frees_ % kFreesCounted == 0) {
      most_before_ = std::exchange(most_in_use_, in_use_);
    }
    const size_t limit = std::min(kMaxBytesKept, std::max(most_in_use_, most_before_));
    if (block->bytes > limit) {
      return;
    }
    auto end = blocks_.begin();
    for (; blocks_.end() - end >= kMaxKept || bytes_ + block->bytes > limit; ++end) {
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

  void count(const LargeBlock& block) {
    in_use_ += block.bytes;
    most_in_use_ = std::max(most_in_use_, in_use_);
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<LargeBlock>> blocks_;  // those freed last at the end
  size_t bytes_ = 0;                                 // of the blocks that are kept
  size_t in_use_ = 0;                                // bytes of the others
  size_t most_in_use_ = 0;                           // since the number of frees was last a multiple of kFreesCounted
  size_t most_before_ = 0;                           // in the kFreesCounted frees before
  uint64_t frees_ = 0;
};

}  // namespace

c10::DataPtr allocate_large(size_t bytes) {
  if (has_allocator_of_user()) {
    return c10::GetCPUAllocator()->allocate(bytes);
  }
  std::unique_ptr<LargeBlock> block = KeptBlocks::instance().take(bytes);
  if (block == nullptr) {
    block = std::make_unique<LargeBlock>(c10::GetDefaultCPUAllocator()->allocate(bytes), bytes);
    KeptBlocks::instance().add(*block);
  }
  void* const data = block->memory.get();
  return {data, block.release(),
          [](void* freed) { KeptBlocks::instance().keep(std::unique_ptr<LargeBlock>(static_cast<LargeBlock*>(freed))); },
          c10::Device(c10::kCPU)};
}

size_t free_kept_blocks() { return KeptBlocks::instance().free_all(); }

}  // namespace sconce
