// The state of a prepared step in a frame.
#pragma once

#include "base/patience.h"
#include "plan/prepared/kernel.h"
#include "plan/prepared/trial.h"
#include "plan/tensor_slot.h"

#include <c10/core/DispatchKeySet.h>

#include <memory>
#include <vector>

namespace sconce {

// An operand as the kernel was prepared for it.
struct OperandGuard {
  uint64_t stamp = 0;        // of the slot
  int64_t number = 0;        // the element of a list of numbers
  bool is_none = false;      // the box holds None, and there is no shell
  at::Tensor shell;          // stands for the tensor in the box
  c10::DispatchKeySet keys;  // the tensor's: they tell the type of its device, and not the index
  bool has_index = false;    // the tensor's device has one, as all have but the CPU

  // Returns whether the box holds a tensor of the form that the shell has, on its device.
  bool matches(const c10::IValue& box) const;
  // The same, but for sizes and strides. Those must be the ones of `first`, unless that is null.
  bool matches_flat(const c10::IValue& box, const c10::TensorImpl* first) const;
  // Makes the shell. Returns false if no shell can stand for the value, or it is not a tensor on the device.
  bool prepare(const c10::IValue& box, c10::Device device);
};

// A kernel, and the operands that it was prepared for.
struct PreparedForm {
  bool is_ready = false;                            // the kernel is prepared, or refused, for the operands below
  bool is_refused = false;                          // the ordinary steps serve these operands
  NotPrepared why_not = NotPrepared::kOperandForm;  // of a kernel that was refused
  bool is_flat = false;                             // the kernel serves operands of other sizes, too
  bool reads_tensors = false;
  bool may_wait = false;  // the kernel says in each run whether it can run
  bool waits = false;     // it could not in the last run
  uint64_t hash = 0;      // of the operands' forms
  std::vector<OperandGuard> operands;
  KernelArguments arguments;
  std::vector<KernelResult> results;
  KernelPtr kernel;
  std::unique_ptr<Trial> trial;  // while the kernel and LibTorch's operator are timed
};

// The form of the last run, and others that come back. A form that was replaced and is asked for again is kept from then on,
// beside the one that replaced it: operands that alternate between few forms are prepared twice. Operands that are new in
// each run replace one form, at the price of PreparedKernel::prepare_again.
struct StepState : PreparedForm {
  static constexpr size_t kMaxForms = 16;
  Patience patience{{.losses = 24, .rest = 256}};  // with preparing other forms
  uint64_t last_prepared = 0;                      // the number of the run
  std::vector<std::unique_ptr<PreparedForm>> others;
  SecondSight replaced{kMaxForms};  // forms

  PreparedForm& current() { return *this; }
  // Makes room for a form of this hash: keeps the current one beside it, or lets it be replaced. Returns whether the form
  // comes back: it was replaced before.
  bool make_room(uint64_t hash_of_new);
};

}  // namespace sconce
