// RecordedPart: forward and backward of a recorded call, or of a part of it, ready to run.
#pragma once

#include "executor/compiled_trace.h"
#include "plan/autograd/differentiable_function.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace sconce {

class RerunBackward;

// Its operands are symbols, then tensors. `results` are those that the call returns, after which forward returns the numbers
// that it reads, and what it keeps for backward.
struct RecordedPart {
  RecordedPart();
  ~RecordedPart();
  RecordedPart(const RecordedPart&) = delete;
  RecordedPart& operator=(const RecordedPart&) = delete;

  std::shared_ptr<CompiledTrace> forward;
  std::shared_ptr<CompiledTrace> backward;                 // null if no result brings a gradient, or if backward raises
  std::shared_ptr<const DifferentiableFunction> function;  // null if no result brings a gradient
  const RerunBackward* rerun = nullptr;                    // the function's `operators`
  size_t results = 0;
  std::vector<c10::IValue> reads;  // numbers that the call reads from tensors; forward returns them after the results
  std::vector<size_t> written;     // tensors that forward writes
  std::vector<size_t> marked;      // tensors that the call has require a gradient
  bool runs_backward = false;      // the call itself runs a backward, which calls hooks
  bool draws = false;              // random numbers

  bool is_ready() const { return forward->is_ready() && (backward == nullptr || backward->is_ready()); }
  void wait_for_compile() const;
  void explain(std::vector<Explanation>& plans) const;
  // Runs forward, and returns the results with their history. Requires `is_ready`. Returns nothing if forward reads other
  // numbers than when it was recorded: then only what it writes and draws has happened.
  std::optional<std::vector<at::Tensor>> run(torch::jit::Stack operands, size_t symbols) const;
};

}  // namespace sconce
