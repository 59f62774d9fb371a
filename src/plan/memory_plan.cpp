#include "plan/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

// A cache line, and the widest vector. Below 16, some kernels of MKL round otherwise.
constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool overlap(Lifetime a, Lifetime b) { return a.first <= b.last && b.first <= a.last; }

size_t most_live_bytes(std::span<const Lifetime> lifetimes, std::span<const size_t> capacities) {
  std::vector<std::pair<uint32_t, int64_t>> changes;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const auto bytes = static_cast<int64_t>(aligned(capacities[i]));
    changes.emplace_back(lifetimes[i].first, bytes);
    changes.emplace_back(lifetimes[i].last + 1, -bytes);
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0;
  int64_t most = 0;
  for (const auto& [position, bytes] : changes) {
    live += bytes;
    most = std::max(most, live);
  }
  return static_cast<size_t>(most);
}

}  // namespace

ArenaLayout pack(std::span<const Lifetime> lifetimes, std::vector<size_t> capacities) {
  ArenaLayout layout;
  layout.offsets.assign(lifetimes.size(), 0);
  layout.lower_bound = most_live_bytes(lifetimes, capacities);
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return capacities[a] > capacities[b]; });
  std::vector<size_t> placed;
  for (const size_t slot : order) {
    const size_t bytes = aligned(capacities[slot]);
    if (bytes == 0) {
      break;
    }
    std::vector<std::pair<size_t, size_t>> taken;  // begin and end of what overlaps in time
    for (const size_t other : placed) {
      if (overlap(lifetimes[slot], lifetimes[other])) {
        taken.emplace_back(layout.offsets[other], layout.offsets[other] + aligned(capacities[other]));
      }
    }
    std::sort(taken.begin(), taken.end());
    size_t best = SIZE_MAX;
    size_t best_gap = SIZE_MAX;
    size_t end = 0;
    for (const auto& [begin, after] : taken) {
      if (begin >= end + bytes && begin - end < best_gap) {
        best = end;
        best_gap = begin - end;
      }
      end = std::max(end, after);
    }
    layout.offsets[slot] = best != SIZE_MAX ? best : end;
    layout.bytes = std::max(layout.bytes, layout.offsets[slot] + bytes);
    placed.push_back(slot);
  }
  layout.capacities = std::move(capacities);
  return layout;
}

void MemoryPlan::learn(std::span<const size_t> bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<size_t> capacities(lifetimes_.size(), 0);
  bool grows = layouts_.empty();
  for (size_t i = 0; i < capacities.size(); ++i) {
    const size_t before = layouts_.empty() ? 0 : layouts_.back()->capacities[i];
    capacities[i] = before;
    if (bytes[i] > before && bytes[i] <= kLargestInArena) {
      grows = true;
      // A slot that grew once may grow in every run: a cache of keys and values.
      capacities[i] = before == 0 ? bytes[i] : bytes[i] + bytes[i] / 4;
    }
  }
  if (grows) {
    layouts_.push_back(std::make_unique<const ArenaLayout>(pack(lifetimes_, std::move(capacities))));
    newest_.store(layouts_.back().get(), std::memory_order_release);
  }
}

}  // namespace sconce
