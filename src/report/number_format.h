// Formats numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace sconce {

// Three significant digits and the unit that fits: "812 ns", "12.3 us", "4.56 ms", "1.20 s".
std::string format_duration(double seconds);
// "1.83x"; "-" when it is not a number.
std::string format_ratio(double ratio);
// A share: "0.4 %", "12 %", "160 %"; "-" for NaN.
std::string format_percent(double share);
// A rate per second: "0.25", "12.3", "456", "12 345"; "-" for NaN.
std::string format_rate(double per_second);
// "12.4 MiB", with a sign when negative.
std::string format_bytes(double bytes);
// Of a thousand and more: "3.64 G" for 3.64e9; to be followed by a unit.
std::string format_si(double value);
// A number in few significant digits: "0.25", "1e-07", "nan".
std::string format_number(double value, int significant_digits = 5);
// "1 234 567".
std::string format_count(uint64_t count);

}  // namespace sconce
