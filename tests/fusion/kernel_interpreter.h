// An interpreter of kernel programs: the meaning of every operation in plain C++, one element after the other. The oracle
// for the code that LLVM makes of a program.
#pragma once

#include "fusion/program/kernel_program.h"
#include "tests/support/scalars.h"

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace sconce::testing {

// What a KernelFunction is called with, but for the buffers of the schedule.
struct KernelCallFrame {
  std::vector<void*> operands;         // the inputs, then the outputs
  std::vector<int64_t> row_steps;      // by operand, in bytes
  std::vector<int64_t> element_steps;  // the same, within a segment of a row
  std::vector<int64_t> segment_steps;  // the same, from segment to segment
  std::vector<int64_t> numbers;
  int64_t rows = 1;
  int64_t elements = 1;
  int64_t segments = 1;
};

// Returns whether kernels may round the operation otherwise than the interpreter: functions of the mathematical library,
// and sums and products of a row.
bool is_inexact(MachineOp op);
// Returns whether some instruction is inexact.
bool is_inexact(const KernelProgram& program);

class KernelInterpreter {
 public:
  // `fuses`: kFma rounds once, as on processors with such an instruction.
  KernelInterpreter(const KernelProgram& program, bool fuses);

  // Moves each inexact result by the error that tests/support/rule_table.h allows, and what is computed of it by one ulp; up
  // or down as `direction` says (1, -1). The results of several such runs show how far kernels may be off (stochastic
  // arithmetic).
  void perturb(std::function<int()> direction) { direction_ = std::move(direction); }

  void run(const KernelCallFrame& frame);

 private:
  // A value of one element; a value of the row is the same for all of them.
  using Values = std::vector<Scalar>;

  // `element`: among those of all segments.
  const char* address(size_t operand, int64_t element) const;
  Scalar compute(const Instruction& each, const Values& values, int64_t element) const;
  Scalar reduced(const Instruction& reduction, const std::vector<Values>& row) const;
  double perturbed(c10::ScalarType type, double value, double error) const;

  const KernelProgram& program_;
  const bool fuses_;
  std::vector<bool> is_affected_;  // by instruction: it is computed of an inexact one
  std::function<int()> direction_;
  const KernelCallFrame* frame_ = nullptr;
  int64_t row_ = 0;
};

}  // namespace sconce::testing
