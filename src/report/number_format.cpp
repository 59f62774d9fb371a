#include "report/number_format.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace sconce {
namespace {

// `format`: of printf, with a precision and a value.
std::string printed(const char* format, int precision, double value) {
  std::array<char, 64> text{};
  const int length = std::snprintf(text.data(), text.size(), format, precision, value);
  if (static_cast<size_t>(length) < text.size()) {
    return text.data();
  }
  std::string longer(static_cast<size_t>(length), '\0');  // "%.*f" of a huge number
  std::snprintf(longer.data(), longer.size() + 1, format, precision, value);
  return longer;
}

// Formats three significant digits without an exponent, for values from 1 to some thousands.
std::string three_digits(double value) {
  const double size = std::abs(value);
  return printed("%.*f", size < 9.995 ? 2 : size < 99.95 ? 1 : 0, value);
}

struct Unit {
  double size;
  const char* name;
};

}  // namespace

std::string format_duration(double seconds) {
  constexpr std::array units = {Unit{1, "s"}, Unit{1e-3, "ms"}, Unit{1e-6, "us"}, Unit{1e-9, "ns"}};
  for (const Unit& unit : units) {
    // A value half a last digit below the unit rounds up to it.
    if (std::abs(seconds) >= unit.size * 0.9995) {
      return three_digits(seconds / unit.size) + " " + unit.name;
    }
  }
  return seconds == 0 ? "0 s" : printed("%.*g s", 2, seconds);
}

std::string format_ratio(double ratio) { return std::isfinite(ratio) ? three_digits(ratio) + "x" : "-"; }

std::string format_percent(double share) {
  const double percent = share * 100;
  return std::isfinite(percent) ? printed("%.*f %%", std::abs(percent) < 9.95 ? 1 : 0, percent) : "-";
}

std::string format_rate(double per_second) {
  if (!std::isfinite(per_second) || per_second >= 1e18) {
    return "-";
  }
  return per_second < 999.5 ? three_digits(per_second) : format_count(static_cast<uint64_t>(std::llround(per_second)));
}

std::string format_bytes(double bytes) {
  constexpr std::array units = {Unit{1024.0 * 1024 * 1024, "GiB"}, Unit{1024.0 * 1024, "MiB"}, Unit{1024, "KiB"}};
  for (const Unit& unit : units) {
    if (std::abs(bytes) >= unit.size) {
      return three_digits(bytes / unit.size) + " " + unit.name;
    }
  }
  return printed("%.*f B", 0, bytes);
}

std::string format_si(double value) {
  constexpr std::array units = {Unit{1e12, "T"}, Unit{1e9, "G"}, Unit{1e6, "M"}, Unit{1e3, "k"}};
  for (const Unit& unit : units) {
    if (std::abs(value) >= unit.size * 0.9995) {
      return three_digits(value / unit.size) + " " + unit.name;
    }
  }
  return printed("%.*g ", 3, value);
}

std::string format_number(double value, int significant_digits) { return printed("%.*g", significant_digits, value); }

std::string format_count(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t position = digits.size(); position > 3;) {
    position -= 3;
    digits.insert(position, " ");
  }
  return digits;
}

}  // namespace sconce
