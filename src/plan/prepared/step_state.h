// The state of a prepared step in a frame.
#pragma once

#include "plan/prepared/kernel.h"
#include "plan/prepared/tensor_slot.h"

#include <c10/core/DispatchKeySet.h>

namespace sconce {

// An operand as the kernel was prepared for it.
struct KnownOperand {
  uint64_t stamp = 0;        // of the slot
  int64_t number = 0;        // the element of a list of numbers
  at::Tensor shell;          // stands for the tensor in the box
  c10::DispatchKeySet keys;  // the tensor's

  // Returns whether the box holds a tensor of the form that the shell has.
  bool matches(const c10::IValue& box) const;
  // Makes the shell. Returns false if no shell can stand for the value.
  bool prepare(const c10::IValue& box);
};

struct StepState {
  static constexpr uint32_t kMostMisfits = 8;
  bool is_ready = false;    // the kernel is prepared, or refused, for the operands below
  bool is_refused = false;  // the ordinary steps serve these operands
  bool reads_tensors = false;
  uint32_t misfits = 0;        // how often preparing was no use; from kMostMisfits on, none is prepared
  uint64_t last_prepared = 0;  // the number of the run
  std::vector<KnownOperand> operands;
  KernelArguments arguments;
  std::vector<KernelResult> results;
  KernelPtr kernel;
};

}  // namespace sconce
