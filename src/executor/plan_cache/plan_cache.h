// PlanCache: a bounded map from specs to plans, whose readers take no lock. A key is the words of an ArgumentSpec
// (argument_spec.h).
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

// Readers search an immutable snapshot: an open-addressing table of pointers to entries. A writer copies the
// snapshot, publishes the copy and retires the old one (epoch.h). When the cache is full, a CLOCK hand chooses the
// entry to evict: one that was not used since the hand last passed. A V is made in place, need not be movable, and is
// destroyed when no reader can hold it. It is destroyed outside the writers' lock, because destruction may wait for
// other threads, which may insert.
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

  // A guard keeps the results of `find` and `find_or_insert` valid.
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
    // Written only if it changes, so that readers of one entry share its cache line.
    if (!entry->used.load(std::memory_order_relaxed)) {
      entry->used.store(true, std::memory_order_relaxed);
    }
    return &entry->value;
  }

  struct Inserted {
    V* value;
    bool is_new;     // false: another thread inserted it first
    size_t evicted;  // entries evicted to make room
  };
  // `make` is called at most once per key, by one thread, while other writers wait (readers do not), so it must be
  // quick. The words of `key` are copied before, so `make` may overwrite them. An exception leaves the cache
  // unchanged.
  Inserted find_or_insert(const Guard& guard, SpecWords key, uint64_t hash, const std::function<V()>& make) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (V* present = find(guard, key, hash)) {
      return {present, false, 0};
    }
    std::vector<Entry*> entries = snapshot_.load()->entries();
    std::vector<Entry*> victims;
    while (entries.size() >= capacity_) {
      victims.push_back(evict(entries));
    }
    const size_t evicted = victims.size();
    auto made = std::make_unique<Entry>(key, hash, make);
    entries.push_back(made.get());
    EpochDomain::Destruction replaced = publish(entries, std::move(victims));
    Entry* const entry = made.release();
    lock.unlock();
    domain_.retire(std::move(replaced));
    return {&entry->value, true, evicted};
  }

  void clear() {
    std::unique_lock<std::mutex> lock(mutex_);
    EpochDomain::Destruction replaced = publish({}, snapshot_.load()->entries());
    lock.unlock();
    domain_.retire(std::move(replaced));
  }

  // Visits every entry, oldest first.
  void for_each(const Guard&, const std::function<void(SpecWords, const V&)>& visit) const {
    for (const Entry* entry : snapshot_.load()->entries()) {
      visit(entry->key, entry->value);
    }
  }
  size_t size() const {
    const EpochDomain::Guard guard(domain_);
    return snapshot_.load()->entries().size();
  }
  // Retired entries and snapshots that a reader may still hold.
  size_t collect() { return domain_.collect(); }

 private:
  struct Entry {
    std::vector<uint64_t> key;
    uint64_t hash;
    V value;
    std::atomic<bool> used{false};  // since it was made or the hand passed; a plan used by one call only is evicted first
    Entry(SpecWords words, uint64_t hash_of_words, const std::function<V()>& make)
        : key(words.begin(), words.end()), hash(hash_of_words), value(make()) {}
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
    // A power of two, at most half full, so that a search always meets an empty slot.
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

  // CLOCK: a used entry gets a second chance; the first unused entry is evicted.
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

  // Publishes a snapshot of `entries`. Returns the destruction of the one before and of `victims`, to be retired once the
  // lock is released. Nothing is published if an allocation fails.
  EpochDomain::Destruction publish(const std::vector<Entry*>& entries, std::vector<Entry*> victims) {
    auto snapshot = std::make_unique<Snapshot>(entries.size());
    for (Entry* entry : entries) {
      snapshot->add(entry);
    }
    EpochDomain::Destruction replaced([old = snapshot_.load(), gone = std::move(victims)] {
      for (const Entry* entry : gone) {
        delete entry;
      }
      delete old;
    });
    snapshot_.store(snapshot.release());
    return replaced;
  }

  const size_t capacity_;
  mutable EpochDomain domain_;
  std::mutex mutex_;  // writers only
  std::atomic<const Snapshot*> snapshot_;
  size_t hand_ = 0;
};

}  // namespace sconce
