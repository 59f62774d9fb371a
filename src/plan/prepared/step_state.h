// The state of a prepared step in a frame.
#pragma once

#include "plan/prepared/kernel.h"
#include "plan/prepared/tensor_slot.h"

#include <c10/core/DispatchKeySet.h>

namespace sconce {

// An operand as the kernel was prepared for it.
struct ImportedTensor {
  uint64_t stamp = 0;        // of the slot
  at::Tensor shell;          // stands for the tensor in the box
  c10::DispatchKeySet keys;  // the tensor's

  // Returns whether the box holds a tensor of the form that the shell has.
  bool matches(const c10::IValue& box) const;
  // Makes the shell. Returns false if no shell can stand for the value.
  bool prepare(const c10::IValue& box);
};

class StepResult final : public KernelResult {
 public:
  const at::Tensor& place(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) override;
  void place_view(at::Tensor view) override {
    shell = std::move(view);
    changed = true;
  }
  const at::Tensor& tensor() const override { return shell; }

  at::Tensor shell;
  size_t bytes = 0;
  bool changed = false;  // since the slot took the shell
};

struct StepState {
  static constexpr uint32_t kMostMisfits = 8;
  bool is_ready = false;    // the kernel is prepared, or refused, for the operands below
  bool is_refused = false;  // the ordinary steps serve these operands
  bool reads_tensors = false;
  uint32_t misfits = 0;        // how often preparing was no use; from kMostMisfits on, none is prepared
  uint64_t last_prepared = 0;  // the number of the run
  std::vector<ImportedTensor> operands;
  KernelArguments arguments;
  StepResult result;
  KernelPtr kernel;
  at::Tensor fresh;  // the result of this run, while the kernel writes it
};

}  // namespace sconce
