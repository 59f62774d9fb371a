// Makes a failing program small enough to read.
#pragma once

#include "tests/differential/composed/program.h"

#include <functional>

namespace sconce::testing::composed {

// Returns a program for which `still_fails` holds and from which it can take nothing more: no statement, call, output,
// input, request of a gradient, form of an argument, or size. Stops after `max_tries` questions.
Program shrink(Program program, const std::function<bool(const Program&)>& still_fails, int max_tries = 600);

}  // namespace sconce::testing::composed
