#pragma once

#include <cstdlib>
#include <string>

namespace sconce::testing {

// The number in the environment variable, `otherwise` when it is not set. Throws std::invalid_argument on other text.
inline uint64_t environment_number(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::stoull(text);
}

}  // namespace sconce::testing
