// ObjectPool: a lock-free pool of reusable objects.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace sconce {

// Any number of threads may take and return objects at the same time, and no operation waits for another thread. The
// pool keeps at most kSlots objects and destroys returned objects beyond that. Every object must be returned, or
// destroyed by its holder, before the pool is destroyed. Free of LibTorch, so that its tests run under
// ThreadSanitizer without suppressions.
template <typename T>
class ObjectPool {
 public:
  static constexpr size_t kSlots = 64;

  ~ObjectPool() { close(); }

  // Destroys the objects in the pool and, from now on, those that are returned.
  void close() {
    for (Slot& slot : slots_) {
      T* object = slot.object.exchange(closed(), std::memory_order_acq_rel);
      if (object != closed()) {
        delete object;
      }
    }
  }

  // Returns an object that was given back with the mark, or null. Threads start at different slots, so that a thread mostly
  // gets the object it had last, warm in its cache.
  std::unique_ptr<T> take(uintptr_t mark = 0) {
    return take_where([mark](const Slot& slot) { return slot.mark.load(std::memory_order_relaxed) == mark; });
  }
  // Returns any object, or null.
  std::unique_ptr<T> take_any() {
    return take_where([](const Slot& /*slot*/) { return true; });
  }

  // `mark`: who is to get the object again. Does not access the pool after the object is destroyed: an object may own the
  // owner of the pool.
  void give_back(std::unique_ptr<T> object, uintptr_t mark = 0) {
    const size_t first = first_slot();
    for (size_t i = 0; i < kSlots; ++i) {
      Slot& slot = slots_[(first + i) % kSlots];
      T* empty = nullptr;
      if (slot.object.load(std::memory_order_relaxed) != nullptr) {
        continue;
      }
      // Before the object is there, as the pool may be destroyed right after. If two threads write a mark for one object,
      // somebody else may take it: it serves all.
      slot.mark.store(mark, std::memory_order_relaxed);
      if (slot.object.compare_exchange_strong(empty, object.get(), std::memory_order_release, std::memory_order_relaxed)) {
        static_cast<void>(object.release());
        return;
      }
    }
  }

 private:
  // The value of the slots of a closed pool; not an object.
  static T* closed() {
    static char place;
    return reinterpret_cast<T*>(&place);
  }

  static size_t first_slot() {
    static thread_local const size_t slot = std::hash<std::thread::id>{}(std::this_thread::get_id()) % kSlots;
    return slot;
  }

  // A cache line per slot, so that threads with different slots do not contend.
  struct alignas(64) Slot {
    std::atomic<T*> object{nullptr};
    std::atomic<uintptr_t> mark{0};
  };

  template <typename Condition>
  std::unique_ptr<T> take_where(const Condition& condition) {
    const size_t first = first_slot();
    for (size_t i = 0; i < kSlots; ++i) {
      Slot& slot = slots_[(first + i) % kSlots];
      T* object = slot.object.load(std::memory_order_relaxed);
      if (object != nullptr && object != closed() && condition(slot) &&
          slot.object.compare_exchange_strong(object, nullptr, std::memory_order_acquire, std::memory_order_relaxed)) {
        return std::unique_ptr<T>(object);
      }
    }
    return nullptr;
  }

  std::array<Slot, kSlots> slots_;
};

}  // namespace sconce
