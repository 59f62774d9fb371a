// ShellCheck: finds tensors that outlive the planned memory they lie in (rule R2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace c10 {
class StorageImpl;
class TensorImpl;
}  // namespace c10

namespace sconce {

class Frame;
class Plan;

// Turns the check on or off for the runs that begin from now on. It is on in builds with SCONCE_DEBUG, and where the
// environment says SCONCE_CHECK_SHELLS=1.
void check_shells(bool on);
bool shells_are_checked();

// Watches the shells of a frame's slots during a run. When a slot is released, nothing but the frame may hold its shell or
// the storage of that: only slots, kernels and results do, which held them when the run began or were prepared in it. A
// quantizer or a list that holds one more reads memory that another tensor has by then.
class ShellCheck {
 public:
  // The run begins: no register holds a tensor.
  ShellCheck(const Plan& plan, const Frame& frame);

  // Called before and after a step changes what slots, kernels and results hold.
  void before_change() { counts_before_ = counts(); }
  void after_change();
  // Remembers the step that ran as the holder of each shell that has a holder more than before it.
  void note_step(size_t position);
  // Throws InternalError if something else holds the shell of a slot.
  void check(std::span<const uint32_t> slots) const;
  void check_all() const;

 private:
  // The shell of a slot, and the number of holders of it and of its storage.
  struct Count {
    const c10::TensorImpl* tensor = nullptr;
    const c10::StorageImpl* storage = nullptr;
    size_t of_tensor = 0;
    size_t of_storage = 0;
  };
  std::vector<Count> counts() const;
  Count count(size_t slot) const;
  // Returns by slot how many holders of its shell and storage are no registers.
  std::vector<size_t> holders_outside_registers() const;

  const Plan& plan_;
  const Frame& frame_;
  std::vector<Count> own_;  // by slot: the holders that may be
  std::vector<Count> counts_before_;
  std::vector<size_t> noted_;    // by slot: holders outside registers, when a step was noted last
  std::vector<size_t> holders_;  // by slot: the position of the last step after which there were more
};

}  // namespace sconce
