// RecordedResults: what the caller gets of the results that a recording computes again and again in the same memory.
#pragma once

#include "plan/device/device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <span>
#include <vector>

namespace sconce {

// Made for the results of one run; then hands them out after each replay.
class RecordedResults {
 public:
  RecordedResults() = default;
  // `operands`: those of the run. `constants`: tensors that every caller may get. `stays`, by result: nothing holds the result when the same
  // recording is replayed again, so that it need not be copied; may be empty.
  RecordedResults(torch::jit::Stack results, std::span<const c10::IValue> operands, std::span<const at::Tensor> constants,
                  const std::vector<bool>& stays);

  // Returns the results for a caller with these operands:
  //   - a tensor that is an operand, or shares its memory: the caller's operand, or a view of it;
  //   - a tensor that shares memory with a constant, or that stays: itself;
  //   - any other tensor: a copy. Copies share memory as the results do.
  //   - any other value: itself.
  // Copies are work of the device's current stream.
  torch::jit::Stack hand_out(std::span<const c10::IValue> operands, DeviceRuntime& runtime) const;

 private:
  enum class Origin : unsigned char { kItself, kOperand, kViewOfOperand, kCopy, kPartOfCopy };
  struct Result {
    Origin origin = Origin::kItself;
    size_t index = 0;    // of the operand, or of the storage
    int64_t offset = 0;  // of a view, from the operand's first element
  };
  Result origin_of(const at::Tensor& result, std::span<const c10::IValue> operands, std::span<const at::Tensor> constants,
                   bool stays);

  torch::jit::Stack results_;
  std::vector<Result> origins_;
  std::vector<at::Tensor> storages_;  // of results in new memory: all elements of each
};

}  // namespace sconce
