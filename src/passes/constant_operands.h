// What passes ask of operands that are constants.
#pragma once

#include "ir/graph.h"

#include <optional>

namespace sconce {

inline std::optional<bool> constant_bool(const Value& value) {
  const auto constant = value.constant();
  return constant && constant->isBool() ? std::optional(constant->toBool()) : std::nullopt;
}

// A position among `size` elements, counted from the back when negative. Nothing when it is no constant or out of range.
inline std::optional<size_t> constant_index(const Value& index, size_t size) {
  const auto constant = index.constant();
  if (!constant || !constant->isInt()) {
    return std::nullopt;
  }
  const int64_t at = constant->toInt() + (constant->toInt() < 0 ? static_cast<int64_t>(size) : 0);
  return at >= 0 && at < static_cast<int64_t>(size) ? std::optional(static_cast<size_t>(at)) : std::nullopt;
}

}  // namespace sconce
