#include "plan/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

size_t aligned(size_t bytes, size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

bool overlap(Lifetime a, Lifetime b) { return a.first <= b.last && b.first <= a.last; }

size_t most_live_bytes(std::span<const Lifetime> lifetimes, std::span<const size_t> capacities, size_t alignment) {
  std::vector<std::pair<uint32_t, int64_t>> changes;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const auto bytes = static_cast<int64_t>(aligned(capacities[i], alignment));
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

ArenaLayout pack(std::span<const Lifetime> lifetimes, std::vector<size_t> capacities, size_t alignment) {
  ArenaLayout layout;
  layout.offsets.assign(lifetimes.size(), 0);
  layout.lower_bound = most_live_bytes(lifetimes, capacities, alignment);
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return capacities[a] > capacities[b]; });
  struct Placed {
    Lifetime lifetime;
    size_t begin;
    size_t end;
  };
  std::vector<Placed> placed;  // in the order of their offsets
  for (const size_t slot : order) {
    const size_t bytes = aligned(capacities[slot], alignment);
    if (bytes == 0) {
      break;
    }
    const Lifetime lifetime = lifetimes[slot];
    size_t best = SIZE_MAX;
    size_t best_gap = SIZE_MAX;
    size_t end = 0;
    for (const Placed& other : placed) {
      if (!overlap(lifetime, other.lifetime)) {
        continue;
      }
      if (other.begin >= end + bytes && other.begin - end < best_gap) {
        best = end;
        best_gap = other.begin - end;
      }
      end = std::max(end, other.end);
    }
    const size_t offset = best != SIZE_MAX ? best : end;
    layout.offsets[slot] = offset;
    layout.bytes = std::max(layout.bytes, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [](size_t value, const Placed& each) { return value < each.begin; }),
                  {lifetime, offset, offset + bytes});
  }
  layout.capacities = std::move(capacities);
  return layout;
}

void MemoryPlan::learn(std::span<const size_t> bytes) {
  // A run does not wait for the layout that another one makes. If that is too small, the next run learns.
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) {
    return;
  }
  std::vector<size_t> capacities(lifetimes_.size(), 0);
  bool grows = layouts_.empty();
  for (size_t i = 0; i < capacities.size(); ++i) {
    const size_t before = layouts_.empty() ? 0 : layouts_.back()->capacities[i];
    capacities[i] = before;
    if (bytes[i] > before && bytes[i] <= kMaxInArena) {
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
