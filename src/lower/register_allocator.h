// RegisterAllocator: tracks which registers of a plan hold a value, during lowering.
#pragma once

#include "base/assert.h"
#include "plan/frame.h"

#include <limits>
#include <vector>

namespace sconce {

// Returns the register that was released last, so that frames stay small and warm in the cache.
class RegisterAllocator {
 public:
  Register take() {
    if (free_.empty()) {
      SCONCE_ASSERT(in_use_.size() < std::numeric_limits<Register>::max());
      in_use_.push_back(true);
      return static_cast<Register>(in_use_.size() - 1);
    }
    const Register index = free_.back();
    free_.pop_back();
    in_use_[index] = true;
    return index;
  }

  void release(Register index) {
    SCONCE_ASSERT(in_use_.at(index), "register ", index, " is released twice");
    in_use_[index] = false;
    free_.push_back(index);
  }

  // Returns the number of registers that have ever been in use.
  size_t count() const { return in_use_.size(); }

  // For the branches of an If, each of which starts with the registers in use before the If. Registers that the first
  // branch added are free for the second.
  struct State {
    std::vector<Register> free;
    size_t count;
  };
  State state() const { return {free_, in_use_.size()}; }
  void restart_with(const State& state) {
    for (const Register index : free_) {
      in_use_[index] = true;
    }
    free_.clear();
    for (size_t index = in_use_.size(); index-- > state.count;) {
      free_.push_back(static_cast<Register>(index));
    }
    free_.insert(free_.end(), state.free.begin(), state.free.end());
    for (const Register index : free_) {
      in_use_[index] = false;
    }
  }

 private:
  std::vector<bool> in_use_;
  std::vector<Register> free_;
};

}  // namespace sconce
