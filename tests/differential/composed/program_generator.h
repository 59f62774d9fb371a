// Random programs of composed operators. The same seed gives the same program on every machine.
#pragma once

#include "tests/differential/composed/program.h"

#include <cstdint>
#include <optional>

namespace sconce::testing::composed {

// A program begins with kTemplatesInOrder calls of templates(), which programs with successive seeds take in turn.
//
// Statements are run by LibTorch's interpreter while the program grows, for the arguments of several calls, and stay if none
// raises and the results are finite. Operands of operators are results of earlier statements, brought to sizes that the
// operator accepts by views, sums, joins and copies. Calls with other arguments, which may raise, are added at the end.
//
// What is left out:
//   - values that explode, and NaN: their comparison tells nothing;
//   - results that are no numbers, tensors or lists of these;
//   - kinks.cases: rounding decides on which side of a kink a computed operand is;
//   - numbers for the dtype or the layout of a tensor: sconce knows them, and drops what made the tensor and would raise;
//   - modules, objects, tasks and printing: tests/differential/language_test.cpp has them.
Program generate_program(uint64_t seed);
inline constexpr size_t kTemplatesInOrder = 3;

// Returns a program around the call that templates()[index] is, or nothing if LibTorch rejects it with the operands that
// were made for it.
std::optional<Program> program_of_template(size_t index, uint64_t seed);

}  // namespace sconce::testing::composed
