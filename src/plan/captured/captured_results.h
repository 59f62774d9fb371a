// CapturedResults: what the caller gets of the results that a capture computes again and again in the same memory.
#pragma once

#include "plan/device/device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <span>
#include <vector>

namespace sconce {

// Made for the results of one run; then hands them out after each replay.
class CapturedResults {
 public:
  CapturedResults() = default;
  // `operands`: those of the run. `constants`: tensors that every caller may get. `stays`, by result: nothing holds the
  // result when the same capture is replayed again, so that it need not be copied; may be empty.
  CapturedResults(torch::jit::Stack results, std::span<const c10::IValue> operands, std::span<const at::Tensor> constants,
                  const std::vector<bool>& stays);

  // Returns the results for a caller with these operands:
  //   - a tensor that is an operand, or shares its memory: the caller's operand, or a view of it;
  //   - a tensor that shares memory with a constant, or that stays with all that share its memory: itself;
  //   - any other tensor: a copy. Copies share memory as the results do, and are views where those are.
  //   - any other value: itself.
  // Copies are work of the device's current stream.
  torch::jit::Stack hand_out(std::span<const c10::IValue> operands, DeviceRuntime& runtime) const;
  // Returns the bytes of the copies that a caller gets.
  size_t copied_bytes() const;

 private:
  enum class Origin : unsigned char { kItself, kOperand, kViewOfOperand, kCopy, kViewOfCopy, kResult };
  struct Result {
    Origin origin = Origin::kItself;
    size_t index = 0;    // of the operand, of the memory, or of the earlier result that is the same tensor
    int64_t offset = 0;  // of a view, from the operand's first element
  };
  // New memory of one or more results.
  struct Memory {
    at::Tensor copied;  // all of its elements, or those that results have
    bool stays = true;
  };
  Result origin_of(size_t result, std::span<const c10::IValue> operands, std::span<const at::Tensor> constants, bool stays);
  void arrange(Memory& memory, size_t index);

  torch::jit::Stack results_;
  std::vector<Result> origins_;
  std::vector<Memory> memories_;
};

}  // namespace sconce
