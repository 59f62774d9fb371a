// JSON output. Keys keep the order in which they were added.
#pragma once

#include <nlohmann/json.hpp>

#include <cmath>

namespace sconce::cli {

using Json = nlohmann::ordered_json;

// JSON has no infinities and NaN: they become strings.
inline Json json_number(double value) {
  if (std::isfinite(value)) {
    return value;
  }
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

}  // namespace sconce::cli
