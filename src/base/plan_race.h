// PlanRace: finds out which of two programs of a call is faster.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>

namespace sconce {

//   call      1 … 12        13 … 24                     25 …
//   runs      plan          plan and others in turns    the faster one
//             (its kernels  (timed, each by its
//             get ready)    fastest turn)
//
// A turn is timed by its owner: until the next call, so that it contains the call's backward. Thread-safe.
class PlanRace {
 public:
  enum class Side : uint8_t { kPlan, kOthers };

  // `is_held`: otherwise the plan runs all calls.
  explicit PlanRace(bool is_held) : calls_(is_held ? 0 : kCalls), is_over_(!is_held) {}

  // Returns who runs the next call.
  Side next() {
    if (calls_.load(std::memory_order_relaxed) >= kCalls) {
      return has_lost_.load(std::memory_order_relaxed) ? Side::kOthers : Side::kPlan;
    }
    const uint32_t call = calls_.fetch_add(1, std::memory_order_relaxed);
    return call < kWarmUp || !kOthersRun[(call - kWarmUp) % kOthersRun.size()] ? Side::kPlan : Side::kOthers;
  }
  bool is_on() const { return !is_over_.load(std::memory_order_relaxed); }
  // Takes the time of a turn. Those of the first calls count if there are no others.
  void note(Side side, double seconds) {
    const std::lock_guard<std::mutex> lock(mutex_);
    double& least = least_[static_cast<size_t>(side)];
    least = least < seconds ? least : seconds;
    turns_of_others_ += side == Side::kOthers ? 1 : 0;
    if (++turns_ >= kCalls || (turns_of_others_ >= kMinTurns && ratio() < kClear)) {
      has_lost_.store(ratio() > kMaxRatio, std::memory_order_relaxed);
      is_over_.store(true, std::memory_order_relaxed);
      calls_.store(kCalls, std::memory_order_relaxed);
    }
  }
  // Returns whether the plan was slower, and runs no more.
  bool has_lost() const { return has_lost_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kWarmUp = 12;
  // Each side gets every call of a step in a program that makes two, three or four calls in each step. The time until the
  // next call contains a backward for the last one alone.
  static constexpr std::array<bool, 12> kOthersRun = {false, true,  false, true,  false, true,
                                                      true,  false, true,  false, true,  false};
  static constexpr uint32_t kCalls = kWarmUp + kOthersRun.size();
  static constexpr double kMaxRatio = 1.03;  // less is noise
  // So many turns of the others end the race if the plan is clearly faster.
  static constexpr uint32_t kMinTurns = 4;
  static constexpr double kClear = 0.9;

  // The plan's time as a multiple of the others'.
  double ratio() const { return least_[0] / least_[1]; }

  std::atomic<uint32_t> calls_;
  std::atomic<bool> has_lost_{false};
  std::atomic<bool> is_over_;
  std::mutex mutex_;  // guards what follows
  uint32_t turns_ = 0;
  uint32_t turns_of_others_ = 0;
  std::array<double, 2> least_ = {std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
};

}  // namespace sconce
