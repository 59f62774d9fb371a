// Runs a program in LibTorch's interpreter and in sconce, and compares everything that a call gives.
#pragma once

#include "tests/differential/composed/program.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sconce::testing::composed {

// A difference between sconce and LibTorch.
struct Finding {
  std::string kind;  // two findings of one kind may have one cause
  std::string text;  // where it is, and both values
};

struct Verdict {
  std::optional<Finding> finding;
  std::string excuse;        // why a difference does not count, if there is one
  bool is_rejected = false;  // LibTorch's compiler does not take the program
  size_t calls = 0;
  size_t calls_that_raise = 0;
  size_t gradients = 0;
  size_t second_gradients = 0;
};

// `phase` is called with "LibTorch" before LibTorch runs the program, and with "sconce" before sconce does: a crash belongs
// to the phase in which it happens.
Verdict check_program(const Program& program, const std::function<void(const std::string&)>& phase);

}  // namespace sconce::testing::composed
