// MemoryPlan: where in a frame's arena the tensors of a run lie.
//
// Lifetimes are known when the plan is made; sizes are learned. In the first run every slot has a block of its own. The plan
// then knows how much each slot needs, and packs slots whose lifetimes do not overlap into the same bytes. A slot that needs
// more in a later run has a block of its own again, until the next layout. So a layout is never wrong, only too small.
//
// A large slot always has a block of its own. Memory of the arena is taken for the whole run; operators that make their own
// results could not use it meanwhile, and a run would need more memory than eager execution.
//
// An arena is memory of the CPU. A slot of another device has blocks of its own: a run may write an arena that the run
// before still reads, if the two use different streams, and LibTorch's allocator knows the stream of each block.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace sconce {

// The steps, by position, from the one that writes a slot to the last one that uses its memory, both included.
struct Lifetime {
  uint32_t first = 0;
  uint32_t last = 0;
};

struct ArenaLayout {
  std::vector<size_t> offsets;     // by slot
  std::vector<size_t> capacities;  // by slot, in bytes; 0 for a slot that is not in the arena
  size_t bytes = 0;                // of the arena
  size_t lower_bound = 0;          // the most bytes that are live at one time: no layout needs fewer
};

// Of arenas, in bytes.
// A cache line, and the widest vector. Below 16, some kernels of MKL round otherwise.
inline constexpr size_t kArenaAlignment = 64;
inline constexpr size_t kMaxInArena = size_t{16} * 1024;

// Packs the slots. Places the largest first, each into the smallest gap between those whose lifetimes overlap its own.
ArenaLayout pack(std::span<const Lifetime> lifetimes, std::vector<size_t> capacities, size_t alignment = kArenaAlignment);

// Shared by all frames of a plan.
class MemoryPlan {
 public:
  explicit MemoryPlan(std::vector<Lifetime> lifetimes) : lifetimes_(std::move(lifetimes)) {}

  size_t slot_count() const { return lifetimes_.size(); }
  std::span<const Lifetime> lifetimes() const { return lifetimes_; }
  // Returns the newest layout; null before the end of the first run. It stays valid as long as the MemoryPlan.
  const ArenaLayout* layout() const { return newest_.load(std::memory_order_acquire); }
  // Makes a layout in which each slot has room for what it needed in the run that ends: `bytes`, by slot.
  void learn(std::span<const size_t> bytes);
  // Notes that a slot had a block of large_blocks.h.
  void note_large_block() {
    if (!had_large_blocks_.load(std::memory_order_relaxed)) {
      had_large_blocks_.store(true, std::memory_order_relaxed);
    }
  }
  bool had_large_blocks() const { return had_large_blocks_.load(std::memory_order_relaxed); }

 private:
  std::vector<Lifetime> lifetimes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<const ArenaLayout>> layouts_;  // each at least a quarter larger than the one before
  std::atomic<const ArenaLayout*> newest_{nullptr};
  std::atomic<bool> had_large_blocks_{false};
};

}  // namespace sconce
