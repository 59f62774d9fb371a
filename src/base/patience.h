// Patience: when an attempt that keeps failing is given up. SecondSight: whether something has come before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sconce {

// Preparing, recording or packing costs as much as many runs. Where what was made is of no use to later runs, it is better
// not made; since operands may settle, it is tried again after a while.
//
//   run        1 … n               n+1 … n+rest          then
//   allows     attempts            none                  attempts: half as many losses are borne,
//              (n: with `losses`                         and the next rest is `growth` times as long
//              losses, less wins)
//
// Not thread-safe.
class Patience {
 public:
  struct Limits {
    uint32_t losses;      // that are borne
    uint32_t rest = 0;    // in runs; 0: for good
    uint32_t growth = 1;  // of the rest
  };

  constexpr explicit Patience(Limits limits) : limits_(limits), rest_(limits.rest) {}

  // Returns whether this run may attempt it. Counts the runs of a rest.
  bool allows() {
    if (!is_exhausted()) {
      return true;
    }
    if (rest_ == 0 || ++rested_ < rest_) {
      return false;
    }
    rested_ = 0;
    rest_ *= limits_.growth;
    losses_ = limits_.losses / 2;
    return true;
  }
  bool is_exhausted() const { return losses_ >= limits_.losses; }
  // The attempt was of no use.
  void lose() { ++losses_; }
  // Takes back losses.
  void win(uint64_t times = 1) { losses_ -= static_cast<uint32_t>(std::min<uint64_t>(losses_, times)); }
  void win_all() { losses_ = 0; }

 private:
  Limits limits_;
  uint32_t losses_ = 0;
  uint64_t rest_;
  uint64_t rested_ = 0;
};

// The last different things that have come, by their hashes. What never comes again is not worth making anything for. Not
// thread-safe.
class SecondSight {
 public:
  // `kept`: how many are remembered.
  explicit SecondSight(size_t kept) : kept_(kept) {}

  bool has_seen(uint64_t hash) const { return std::ranges::find(hashes_, hash) != hashes_.end(); }
  bool is_empty() const { return hashes_.empty(); }
  // Remembers it in place of the oldest.
  void note(uint64_t hash) {
    if (hashes_.size() < kept_) {
      hashes_.push_back(hash);
    } else {
      hashes_[oldest_++ % kept_] = hash;
    }
  }
  // Returns whether it has been seen, and notes it if not.
  bool sees_again(uint64_t hash) {
    const bool has_come = has_seen(hash);
    if (!has_come) {
      note(hash);
    }
    return has_come;
  }

 private:
  size_t kept_;
  size_t oldest_ = 0;
  std::vector<uint64_t> hashes_;
};

}  // namespace sconce
