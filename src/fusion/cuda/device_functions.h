// Names and texts of functions in CUDA C++.
#pragma once

#include "fusion/program/kernel_program.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace sconce {

// Returns the type of an element in a register: "float". `bool` takes a byte in memory.
std::string device_type(c10::ScalarType type);
// Returns the text that all kernels begin with: types and functions.
const char* device_prelude();
// Returns the text after it of kernels that call a function of special_functions.inc.
const char* special_device_functions();
bool is_special_device_function(std::string_view name);
// Returns the expression of an instruction of these operands, of type `operand`. Nothing if it calls a function that there
// is no text of.
std::optional<std::string> device_expression(const Instruction& instruction, c10::ScalarType operand,
                                             const std::array<std::string, 3>& operands);
std::string device_literal(const Instruction& literal);

}  // namespace sconce
