// Gradients of operators without a text, from LibTorch's own autograd.
//
// A call with example operands is recorded with its backward at two sets of sizes. Numbers that differ become computations
// of sizes. The rule that comes out is compared with autograd at other sizes, with sizes of 1 and 0, with operands and
// incoming gradients in other strides, and in double backward, before it is used.
#pragma once

#include "autodiff/rules/call_pattern.h"
#include "load/compile_op_row.h"

#include <string>

namespace sconce {

struct RecordedGradient {
  OpGradient gradient;  // has `backward` alone, whose entries have sizes and dtypes of the arguments
  std::string refusal;  // why there is no gradient; empty if there is one
};

// Returns the gradient of all calls with the pattern. Recorded once per process; any thread may call. The state of the
// thread has no part in it, and no tracer or profiler of the thread sees what it runs. LibTorch's code runs with operands
// that the operator may not expect, so only operators that are known to bear it are recorded (OpRow::recorded_gradient).
const RecordedGradient& record_gradient(const CallPattern& pattern);

// Returns the gradient that was recorded for the pattern with this key.
const RecordedGradient& recorded_gradient(const std::string& key);

}  // namespace sconce
