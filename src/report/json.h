// JSON output. Keys keep the order in which they were added.
#pragma once

#include <nlohmann/json.hpp>

#include <cmath>
#include <string>

namespace sconce {

using Json = nlohmann::ordered_json;

// JSON has no infinities and NaN: they become strings.
inline Json json_number(double value) {
  if (std::isfinite(value)) {
    return value;
  }
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

// Returns a measured value, or null if there is none.
inline Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

// Returns indented text. Bytes that are not UTF-8 (quoted from a damaged file) become U+FFFD.
inline std::string json_text(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, nlohmann::detail::error_handler_t::replace) + "\n";
}

}  // namespace sconce
