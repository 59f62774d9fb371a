// Names and addresses of scalar functions.
#include "fusion/program/scalar_functions.h"

#include "base/assert.h"

#include <algorithm>

namespace sconce {

uint32_t scalar_function(std::string_view name) {
  const auto all = scalar_functions();
  const auto found = std::find_if(all.begin(), all.end(), [&](const ScalarFunction& each) { return each.name == name; });
  SCONCE_ASSERT(found != all.end(), "no scalar function ", name);
  return static_cast<uint32_t>(found - all.begin());
}

std::string symbol_of(const ScalarFunction& function, c10::ScalarType type) {
  return "sconce_" + std::string(function.name) + "_" + c10::toString(type);
}

void* address_of(const ScalarFunction& function, c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return function.of_float;
    case c10::ScalarType::Double: return function.of_double;
    case c10::ScalarType::Int: return function.of_int;
    case c10::ScalarType::Long: return function.of_long;
    default: return nullptr;
  }
}

}  // namespace sconce
