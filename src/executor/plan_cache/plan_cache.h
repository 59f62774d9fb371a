// Spec → plan: a bounded map whose readers take no lock. A key is the words of an ArgumentSpec (argument_spec.h).
#pragma once

#include "executor/plan_cache/epoch.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace sconce {

using SpecWords = std::span<const uint64_t>;

// Readers search an immutable snapshot: an open-addressing table of pointers to entries. A writer copies the snapshot,
// publishes the copy and retires the old one (epoch.h). When the cache is full the entry that was not used for longest,
// as a CLOCK hand sees it, makes room. V must be constructible once and is destroyed when no reader can hold it.
//
// Free of LibTorch (keys are words), so that its tests run under ThreadSanitizer without suppressions.
template <typename V>
class PlanCache {
 public:
  explicit PlanCache(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)), snapshot_(new Snapshot(0)) {}
  ~PlanCache() {
    const Snapshot* snapshot = snapshot_.load();
    for (Entry* entry : snapshot->entries()) {
      delete entry;
    }
    delete snapshot;
  }
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  // What `find` and `find_or_insert` return stays valid while the guard lives.
  class Guard : public EpochDomain::Guard {
   public:
    explicit Guard(PlanCache& cache) : EpochDomain::Guard(cache.domain_) {}
  };

  // Null on a miss. Takes no lock and allocates nothing.
  V* find(const Guard&, SpecWords key, uint64_t hash) {
    Entry* entry = snapshot_.load()->find(key, hash);
    if (entry == nullptr) {
      return nullptr;
    }
    // Written only when it changes something: readers of one entry then share its cache line.
    if (!entry->used.load(std::memory_order_relaxed)) {
      entry->used.store(true, std::memory_order_relaxed);
    }
    return &entry->value;
  }

  struct Inserted {
    V* value;
    bool is_new;     // false: another thread was first
    size_t evicted;  // entries that made room
  };
  // `make` is called at most once per key, by one thread, while other writers wait (readers do not): it must be quick.
  Inserted find_or_insert(const Guard& guard, SpecWords key, uint64_t hash, const std::function<V()>& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (V* present = find(guard, key, hash)) {
      return {present, false, 0};
    }
    const Snapshot* current = snapshot_.load();
    std::vector<Entry*> entries = current->entries();
    std::vector<Entry*> victims;
    while (entries.size() >= capacity_) {
      victims.push_back(evict(entries));
    }
    auto* entry = new Entry{std::vector<uint64_t>(key.begin(), key.end()), hash, make()};
    entries.push_back(entry);
    publish(entries);
    for (Entry* victim : victims) {
      domain_.retire([victim] { delete victim; });
    }
    return {&entry->value, true, victims.size()};
  }

  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::vector<Entry*> entries = snapshot_.load()->entries();
    publish({});
    for (Entry* entry : entries) {
      domain_.retire([entry] { delete entry; });
    }
  }

  // Visits every entry, oldest first.
  void for_each(const Guard&, const std::function<void(SpecWords, const V&)>& visit) const {
    for (const Entry* entry : snapshot_.load()->entries()) {
      visit(entry->key, entry->value);
    }
  }
  size_t size() const { return snapshot_.load()->entries().size(); }
  // Retired entries and snapshots that a reader may still hold.
  size_t collect() { return domain_.collect(); }

 private:
  struct Entry {
    std::vector<uint64_t> key;
    uint64_t hash;
    V value;
    std::atomic<bool> used{false};  // since it was made or the hand passed; a plan that serves one call only goes first
    Entry(std::vector<uint64_t> k, uint64_t h, V v) : key(std::move(k)), hash(h), value(std::move(v)) {}
  };

  class Snapshot {
   public:
    explicit Snapshot(size_t entries) : slots_(table_size(entries), nullptr) {}

    void add(Entry* entry) {
      entries_.push_back(entry);
      size_t slot = entry->hash & (slots_.size() - 1);
      while (slots_[slot] != nullptr) {
        slot = (slot + 1) & (slots_.size() - 1);
      }
      slots_[slot] = entry;
    }

    Entry* find(SpecWords key, uint64_t hash) const {
      for (size_t slot = hash & (slots_.size() - 1); slots_[slot] != nullptr; slot = (slot + 1) & (slots_.size() - 1)) {
        Entry* entry = slots_[slot];
        if (entry->hash == hash && std::equal(key.begin(), key.end(), entry->key.begin(), entry->key.end())) {
          return entry;
        }
      }
      return nullptr;
    }

    const std::vector<Entry*>& entries() const { return entries_; }

   private:
    // A power of two, at most half full: a search always meets an empty slot.
    static size_t table_size(size_t entries) {
      size_t size = 4;
      while (size < 2 * (entries + 1)) {
        size *= 2;
      }
      return size;
    }
    std::vector<Entry*> entries_;
    std::vector<Entry*> slots_;
  };

  // CLOCK: a used entry gets a second chance, the first unused one goes.
  Entry* evict(std::vector<Entry*>& entries) {
    while (true) {
      hand_ = hand_ % entries.size();
      Entry* candidate = entries[hand_];
      if (!candidate->used.exchange(false, std::memory_order_relaxed)) {
        entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(hand_));
        return candidate;
      }
      ++hand_;
    }
  }

  void publish(const std::vector<Entry*>& entries) {
    auto* snapshot = new Snapshot(entries.size());
    for (Entry* entry : entries) {
      snapshot->add(entry);
    }
    const Snapshot* old = snapshot_.exchange(snapshot);
    domain_.retire([old] { delete old; });
  }

  const size_t capacity_;
  EpochDomain domain_;
  std::mutex mutex_;  // writers only
  std::atomic<const Snapshot*> snapshot_;
  size_t hand_ = 0;
};

}  // namespace sconce
