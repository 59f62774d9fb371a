// Trial: whether a plan is faster than what it takes the place of, found by turns.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

namespace sconce {

// The first calls run the plan, which prepares its kernels meanwhile. Then plan and others take turns, and the faster one
// runs all calls that follow. Thread-safe.
class Trial {
 public:
  enum class Side : uint8_t { kPlan, kOthers };

  // `is_held`: without a trial, the plan runs all calls.
  explicit Trial(bool is_held) : calls_(is_held ? 0 : kCalls), is_over_(!is_held) {}

  // Returns who runs the next call.
  Side next() {
    if (calls_.load(std::memory_order_relaxed) >= kCalls) {
      return has_lost_.load(std::memory_order_relaxed) ? Side::kOthers : Side::kPlan;
    }
    const uint32_t call = calls_.fetch_add(1, std::memory_order_relaxed);
    return call < kWarmUp || call % 2 == 0 ? Side::kPlan : Side::kOthers;
  }
  // Returns whether the trial goes on, so that `note` is to be told.
  bool is_on() const { return !is_over_.load(std::memory_order_relaxed); }
  // Takes the time of a call.
  void note(Side side, double seconds) {
    const std::lock_guard<std::mutex> lock(mutex_);
    double& least = least_[static_cast<size_t>(side)];
    least = least < seconds ? least : seconds;
    noted_by_others_ += side == Side::kOthers ? 1 : 0;
    if (++noted_ >= kCalls || (noted_by_others_ >= kMinCalls && ratio() < kClear)) {
      has_lost_.store(ratio() > kMaxRatio, std::memory_order_relaxed);
      is_over_.store(true, std::memory_order_relaxed);
      calls_.store(kCalls, std::memory_order_relaxed);
    }
  }
  bool has_lost() const { return has_lost_.load(std::memory_order_relaxed); }
  // Returns the plan's time as a multiple of the others'.
  double ratio() const { return least_[0] / least_[1]; }

 private:
  static constexpr uint32_t kWarmUp = 12;
  static constexpr uint32_t kCalls = kWarmUp + 12;
  static constexpr double kMaxRatio = 1.1;  // less is noise
  // So many calls by the others end the trial if the plan is clearly faster.
  static constexpr uint32_t kMinCalls = 2;
  static constexpr double kClear = 0.9;

  std::atomic<uint32_t> calls_;
  std::atomic<bool> has_lost_{false};
  std::atomic<bool> is_over_;
  std::mutex mutex_;  // guards what follows
  uint32_t noted_ = 0;
  uint32_t noted_by_others_ = 0;
  std::array<double, 2> least_ = {std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
};

}  // namespace sconce
