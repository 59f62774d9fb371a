// EpochDomain: lock-free reading of shared structures, which are destroyed after their last reader.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <mutex>
#include <utility>

namespace sconce {

// Readers enter a domain, load a pointer that a writer publishes, and leave when they are done with it. A writer that
// has unpublished an object retires it; it is destroyed after every reader that might hold it has left. Readers are
// counted under the parity of the current epoch. The epoch advances only if no reader is left under the other parity.
// Two advances after its retirement no reader can hold an object: first the readers from before the last advance have
// left, then those from before the retirement. Readers never wait; a long reader only delays destruction.
//
// Free of LibTorch, so that its tests run under ThreadSanitizer without suppressions.
class EpochDomain {
 public:
  // Requires: no readers.
  ~EpochDomain() {
    for (Destruction::Item& retired : retired_) {
      retired.destroy();
    }
  }

  class Guard {
   public:
    explicit Guard(EpochDomain& domain) : count_(&domain.stripe().readers[domain.epoch_.load() & 1]) {
      count_->fetch_add(1);
    }
    ~Guard() { count_->fetch_sub(1, std::memory_order_release); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    std::atomic<uint32_t>* count_;
  };

  // The destruction of an object. A writer makes it before it unpublishes the object, so that retiring allocates
  // nothing, and no failure can lose an object.
  class Destruction {
   public:
    explicit Destruction(std::function<void()> destroy) { item_.push_back({0, std::move(destroy)}); }

   private:
    friend class EpochDomain;
    struct Item {
      uint64_t epoch;
      std::function<void()> destroy;
    };
    std::list<Item> item_;
  };

  // Destroys the object: in this call, in a later call of `retire` or `collect` from any thread, or in the
  // destructor. The object must have been unpublished by a sequentially consistent store. Destruction may take long
  // and wait for other threads, so the caller must hold no lock that these may need.
  void retire(Destruction destruction) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      destruction.item_.front().epoch = epoch_.load();
      retired_.splice(retired_.end(), destruction.item_);
    }
    collect();
  }
  void retire(std::function<void()> destroy) { retire(Destruction(std::move(destroy))); }

  // Destroys objects that no reader can hold any longer. Returns the number of retired objects that are left.
  size_t collect() {
    std::list<Destruction::Item> free;
    size_t left = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (int advances = 0; advances < 2 && !retired_.empty() && nobody_under(epoch_.load() + 1); ++advances) {
        epoch_.fetch_add(1);
      }
      const uint64_t epoch = epoch_.load();
      for (auto retired = retired_.begin(); retired != retired_.end();) {
        const auto next = std::next(retired);
        if (retired->epoch + 2 <= epoch) {
          free.splice(free.end(), retired_, retired);
        }
        retired = next;
      }
      left = retired_.size();
    }
    for (Destruction::Item& retired : free) {
      retired.destroy();
    }
    return left;
  }

 private:
  // A cache line per slot, so that readers of different threads do not contend.
  struct alignas(64) Stripe {
    std::array<std::atomic<uint32_t>, 2> readers{};
  };
  static constexpr size_t kStripes = 16;

  Stripe& stripe() {
    static std::atomic<size_t> threads{0};
    // Placed by the loader at program start, so that an access is one instruction.
    [[gnu::tls_model("initial-exec")]] static constinit thread_local size_t number = 0;
    if (number == 0) [[unlikely]] {
      number = threads.fetch_add(1) + 1;
    }
    return stripes_[number % kStripes];
  }

  bool nobody_under(uint64_t parity) const {
    for (const Stripe& stripe : stripes_) {
      if (stripe.readers[parity & 1].load() != 0) {
        return false;
      }
    }
    return true;
  }

  std::array<Stripe, kStripes> stripes_;
  std::atomic<uint64_t> epoch_{0};
  std::mutex mutex_;
  std::list<Destruction::Item> retired_;
};

}  // namespace sconce
