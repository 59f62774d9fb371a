// FormOperands: the operands that runs of one form have, and where a capture reads them.
#pragma once

#include "plan/device/device.h"
#include "plan/prepared/step_state.h"

#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sconce {

// Of each operand of a run, in order: a dense tensor on the device, a number that kernels read in memory, or another value.
class FormOperands {
 public:
  using Operands = std::span<const c10::IValue>;

  // Takes the form of a run. `is_in_memory`, by operand: kernels alone read the number, in memory if it fits. Returns why no
  // capture can serve such operands; empty if one can.
  std::string take(Operands operands, c10::Device device, const std::vector<bool>& is_in_memory);
  // Returns whether a run with these operands has the form.
  bool matches(Operands operands) const;

  void note_addresses(Operands operands);
  // Returns the operands for a capture. Those whose address is not the noted one, or that are in `always_copied`, have
  // memory of their own, to which replays copy.
  torch::jit::Stack to_capture(Operands operands, const std::vector<bool>& always_copied);
  // Notes which operands the captured work has written, of those that may be.
  void note_writes(const std::vector<bool>& may_be_written);
  // Notes in `always_copied` which operands, that the capture reads at their own addresses, lie elsewhere now. Returns
  // whether there are any.
  bool have_moved(Operands operands, std::vector<bool>& always_copied) const;
  // Returns whether an operand shares memory with one that is written, and one of the two is copied: a replay would not see
  // the writes, or lose them.
  bool share_written_memory(Operands operands) const;
  // Copies operands to where the capture reads them, and back what it has written there. Work of the current stream.
  void copy(Operands operands, DeviceRuntime& runtime) const;
  void copy_back(Operands operands) const;
  size_t copied_bytes() const;  // by both

  // Numbers in memory, by their positions among the operands.
  const std::vector<size_t>& numbers() const { return numbers_; }
  std::vector<int64_t> bits_of_numbers(Operands operands) const;
  // Makes the numbers part of the form.
  void keep_numbers(Operands operands);

  void forget_capture();

 private:
  struct Operand {
    OperandGuard tensor;  // without a shell for other values
    c10::IValue value;
    void* address = nullptr;  // when it was noted
    bool is_copied = false;   // to the captured address; else the capture has the operand's own
    bool is_written = false;
    at::Tensor captured;   // the tensor that the capture reads
    uint32_t version = 0;  // of that tensor, before the capture
  };
  bool is_number(size_t position) const;
  bool is_tensor(size_t position) const { return operands_[position].tensor.shell.defined(); }

  std::vector<Operand> operands_;
  std::vector<size_t> numbers_;
  std::vector<size_t> copied_;   // positions
  std::vector<size_t> written_;  // positions
};

}  // namespace sconce
