// A kernel program with two reductions.
#pragma once

#include "fusion/program/kernel_program.h"

#include <ATen/core/Tensor.h>

namespace sconce::testing {

// Returns softmax of rows, and the sums of their exponentials: a maximum, exponentials and their sum, quotients.
inline KernelProgram softmax_program(LoopOrder order, c10::ScalarType type = at::kFloat) {
  KernelProgram program;
  program.order = order;
  program.inputs = {{type, Access::kElements}};
  program.code = {
      {.op = MachineOp::kLoad, .type = type, .index = 0},    {.op = MachineOp::kLargest, .type = type, .a = 0},
      {.op = MachineOp::kSub, .type = type, .a = 0, .b = 1}, {.op = MachineOp::kExp, .type = type, .a = 2},
      {.op = MachineOp::kSum, .type = type, .a = 3},         {.op = MachineOp::kDiv, .type = type, .a = 3, .b = 4}};
  program.outputs = {{type, 5}, {type, 4, Access::kOne}};
  return program;
}

}  // namespace sconce::testing
