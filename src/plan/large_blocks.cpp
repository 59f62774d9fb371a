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
  size_t used = 0;  // of the bytes, by whom it was given to
};

class KeptBlocks {
 public:
  using Blocks = std::vector<std::unique_ptr<LargeBlock>>;

  static KeptBlocks& instance() {
    static auto* const blocks = new KeptBlocks;  // frames may outlive static objects
    return *blocks;
  }

  // Returns null if a new block is to be allocated: no block that is kept is large enough, or only blocks of more than twice
  // the size and there is room for another.
  std::unique_ptr<LargeBlock> take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto found = std::find_if(blocks_.rbegin(), blocks_.rend(),
                              [bytes](const auto& block) { return block->bytes >= bytes && block->bytes / 2 <= bytes; });
    if (found == blocks_.rend() && bytes_ + bytes > limit()) {
      found = smallest_of(bytes);
    }
    if (found == blocks_.rend()) {
      return nullptr;
    }
    std::unique_ptr<LargeBlock> block = std::move(*found);
    blocks_.erase(std::next(found).base());
    kept_ -= block->bytes;
    use(*block, bytes);
    return block;
  }

  // Notes that a new block is in use.
  void add(LargeBlock& block) {
    const std::lock_guard lock(mutex_);
    bytes_ += block.bytes;
    use(block, block.bytes);
  }

  void keep(std::unique_ptr<LargeBlock> block) {
    Blocks freed;  // outside of the lock
    const std::lock_guard lock(mutex_);
    in_use_ -= block->used;
    if (++frees_ % kFreesCounted == 0) {
      most_before_ = std::exchange(most_in_use_, in_use_);
    }
    if (block->bytes > std::min(limit(), kMaxBytesKept)) {
      bytes_ -= block->bytes;
      freed.push_back(std::move(block));
      return;
    }
    kept_ += block->bytes;
    auto end = blocks_.begin();
    for (; end != blocks_.end() && (blocks_.end() - end >= kMaxKept || bytes_ > limit() || kept_ > kMaxBytesKept); ++end) {
      bytes_ -= (*end)->bytes;
      kept_ -= (*end)->bytes;
      freed.push_back(std::move(*end));
    }
    blocks_.erase(blocks_.begin(), end);
    blocks_.push_back(std::move(block));
  }

  size_t free_all() {
    std::vector<std::unique_ptr<LargeBlock>> freed;
    const std::lock_guard lock(mutex_);
    freed.swap(blocks_);
    bytes_ -= kept_;
    return std::exchange(kept_, 0);
  }

 private:
  static constexpr std::ptrdiff_t kMaxKept = 64;

  KeptBlocks() { blocks_.reserve(kMaxKept); }

  // Returns how many bytes all blocks may have. The layers of a network need blocks of many sizes, one after the other: in
  // less room, blocks would be freed that the next run has to allocate again.
  size_t limit() const {
    const size_t demand = std::max(most_in_use_, most_before_);
    return demand + std::min(demand, kMaxBytesKept);
  }

  // Returns the smallest kept block of at least `bytes` bytes; `blocks_.rend()` if there is none.
  Blocks::reverse_iterator smallest_of(size_t bytes) {
    auto found = blocks_.rend();
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      if ((*block)->bytes >= bytes && (found == blocks_.rend() || (*block)->bytes < (*found)->bytes)) {
        found = block;
      }
    }
    return found;
  }

  void use(LargeBlock& block, size_t bytes) {
    block.used = bytes;
    in_use_ += bytes;
    most_in_use_ = std::max(most_in_use_, in_use_);
  }

  std::mutex mutex_;
  Blocks blocks_;           // that are kept, those freed last at the end
  size_t kept_ = 0;         // their bytes
  size_t bytes_ = 0;        // of all blocks, in use or kept
  size_t in_use_ = 0;       // bytes that were asked for
  size_t most_in_use_ = 0;  // since the number of frees was last a multiple of kFreesCounted
  size_t most_before_ = 0;  // in the kFreesCounted frees before
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
