// Functions of single elements, which kernels call for one lane after the other: those that LibTorch's own kernels use, so
// that results are equal.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sconce {

struct ScalarFunction {
  std::string_view name;
  size_t operands;  // one or two, of the type of the result
  // Addresses by type; null where there is no such function.
  void* of_float = nullptr;
  void* of_double = nullptr;
  void* of_int = nullptr;
  void* of_long = nullptr;
};

std::span<const ScalarFunction> scalar_functions();
// Returns the position of the function, which must be there.
uint32_t scalar_function(std::string_view name);
// Returns the name under which a kernel calls the function: "sconce_digamma_Float".
std::string symbol_of(const ScalarFunction& function, c10::ScalarType type);
void* address_of(const ScalarFunction& function, c10::ScalarType type);

}  // namespace sconce
