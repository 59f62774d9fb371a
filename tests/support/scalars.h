// The values of single elements, and what instructions compute of them, in plain C++.
#pragma once

#include "fusion/program/kernel_program.h"

#include <cstdint>

namespace sconce::testing {

// Numbers of floating types are in `real`, those of all others in `whole`.
struct Scalar {
  double real = 0;
  int64_t whole = 0;
};

Scalar scalar_from_memory(c10::ScalarType type, const char* at);
void scalar_to_memory(c10::ScalarType type, char* at, Scalar value);
// Returns a parameter of a kernel: eight bytes.
Scalar scalar_of_number(c10::ScalarType type, int64_t number);
double rounded_to(c10::ScalarType type, double value);

// Computes an instruction that has operands, of type `operand` (of a selection, of what it selects), or a literal. `fuses`:
// kFma rounds once. Functions of the mathematical library are those of float64, rounded.
Scalar compute_scalar(const Instruction& instruction, c10::ScalarType operand, Scalar a, Scalar b, Scalar c, bool fuses);

}  // namespace sconce::testing
