// ObjectPool: a lock-free pool of reusable objects.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
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

  // Returns a returned object, or null. Threads start at different slots, so that a thread mostly gets the object it
  // had last, warm in its cache.
  std::unique_ptr<T> take() {
    const size_t first = first_slot();
    for (size_t i = 0; i < kSlots; ++i) {
      std::atomic<T*>& slot = slots_[(first + i) % kSlots].object;
      T* object = slot.load(std::memory_order_relaxed);
      if (object != nullptr && object != closed() &&
          slot.compare_exchange_strong(object, nullptr, std::memory_order_acquire, std::memory_order_relaxed)) {
        return std::unique_ptr<T>(object);
      }
    }
    return nullptr;
  }

  // Does not access the pool after the object is in it or destroyed: an object may own the owner of the pool.
  void give_back(std::unique_ptr<T> object) {
    const size_t first = first_slot();
    for (size_t i = 0; i < kSlots; ++i) {
      std::atomic<T*>& slot = slots_[(first + i) % kSlots].object;
      T* empty = nullptr;
      if (slot.load(std::memory_order_relaxed) == nullptr &&
          slot.compare_exchange_strong(empty, object.get(), std::memory_order_release, std::memory_order_relaxed)) {
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
  };
  std::array<Slot, kSlots> slots_;
};

}  // namespace sconce
