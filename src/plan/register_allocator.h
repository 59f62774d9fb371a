// Which registers of a plan hold a value, while its steps are laid out.
#pragma once

#include "base/assert.h"
#include "plan/frame.h"

#include <limits>
#include <vector>

namespace sconce {

// Gives the register that was freed last, so that frames stay small and warm.
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

  // So many registers have ever been in use.
  size_t count() const { return in_use_.size(); }

  // For the branches of an If: each begins with what is in use at the If's start. What a branch that was laid out before
  // took anew and released is free for the next.
  std::vector<bool> in_use() const { return in_use_; }
  void restart_with(const std::vector<bool>& in_use) {
    for (Register index = 0; index < in_use.size(); ++index) {
      in_use_[index] = in_use[index];
    }
    free_.clear();
    for (size_t index = in_use_.size(); index-- > 0;) {
      if (!in_use_[index]) {
        free_.push_back(static_cast<Register>(index));
      }
    }
  }

 private:
  std::vector<bool> in_use_;
  std::vector<Register> free_;
};

}  // namespace sconce
