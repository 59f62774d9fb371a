// A counter that many threads increment without contention.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sconce {

class StripedCounter {
 public:
  void add(uint64_t amount = 1) {
    static std::atomic<size_t> next{0};
    static thread_local const size_t index = next.fetch_add(1) % kStripes;
    stripes_[index].count.fetch_add(amount, std::memory_order_relaxed);
  }
  uint64_t value() const {
    uint64_t sum = 0;
    for (const Stripe& stripe : stripes_) {
      sum += stripe.count.load(std::memory_order_relaxed);
    }
    return sum;
  }
  // Sets the counter to zero. Additions made at the same time may be lost.
  void reset() {
    for (Stripe& stripe : stripes_) {
      stripe.count.store(0, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr size_t kStripes = 16;
  struct alignas(64) Stripe {
    std::atomic<uint64_t> count{0};
  };
  std::array<Stripe, kStripes> stripes_;
};

}  // namespace sconce
