#include "tools/sconce/values/spec_dtypes.h"

#include "report/number_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace sconce::cli {
namespace {

template <typename T>
SpecDtype whole(std::string_view name, c10::ScalarType dtype, c10::ScalarType made_in) {
  constexpr bool fits = sizeof(T) < sizeof(int64_t) || std::numeric_limits<T>::is_signed;
  return {name, dtype, made_in, static_cast<int64_t>(std::numeric_limits<T>::min()),
          fits ? static_cast<int64_t>(std::numeric_limits<T>::max()) : std::numeric_limits<int64_t>::max()};
}

template <typename T>
SpecDtype real(std::string_view name, c10::ScalarType dtype, c10::ScalarType made_in) {
  return {name, dtype, made_in, 0, 0, static_cast<double>(std::numeric_limits<T>::max())};
}

}  // namespace

std::span<const SpecDtype> spec_dtypes() {
  using namespace c10;
  static const std::array dtypes = {
      real<float>("float32", kFloat, kFloat),
      real<float>("float", kFloat, kFloat),
      real<double>("float64", kDouble, kDouble),
      real<double>("double", kDouble, kDouble),
      real<Half>("float16", kHalf, kHalf),
      real<Half>("half", kHalf, kHalf),
      real<BFloat16>("bfloat16", kBFloat16, kBFloat16),
      real<Float8_e4m3fn>("float8_e4m3fn", ScalarType::Float8_e4m3fn, kFloat),
      real<Float8_e5m2>("float8_e5m2", ScalarType::Float8_e5m2, kFloat),
      real<Float8_e4m3fnuz>("float8_e4m3fnuz", ScalarType::Float8_e4m3fnuz, kFloat),
      real<Float8_e5m2fnuz>("float8_e5m2fnuz", ScalarType::Float8_e5m2fnuz, kFloat),
      real<Half>("complex32", ScalarType::ComplexHalf, kComplexFloat),
      real<float>("complex64", kComplexFloat, kComplexFloat),
      real<double>("complex128", kComplexDouble, kComplexDouble),
      whole<int64_t>("int64", kLong, kLong),
      whole<int64_t>("long", kLong, kLong),
      whole<int32_t>("int32", kInt, kInt),
      whole<int32_t>("int", kInt, kInt),
      whole<int16_t>("int16", kShort, kShort),
      whole<int8_t>("int8", kChar, kChar),
      whole<uint8_t>("uint8", kByte, kByte),
      whole<uint16_t>("uint16", ScalarType::UInt16, kLong),
      whole<uint32_t>("uint32", ScalarType::UInt32, kLong),
      whole<uint64_t>("uint64", ScalarType::UInt64, kLong),
      whole<bool>("bool", kBool, kBool),
  };
  return dtypes;
}

const SpecDtype* find_spec_dtype(std::string_view name) {
  const auto dtypes = spec_dtypes();
  const auto found = std::find_if(dtypes.begin(), dtypes.end(), [&](const SpecDtype& each) { return each.name == name; });
  return found == dtypes.end() ? nullptr : &*found;
}

std::optional<std::string> why_no_spec_dtype(std::string_view name) {
  constexpr std::array quantized = {"qint8", "quint8", "qint32", "quint4x2", "quint2x4"};
  if (std::find(quantized.begin(), quantized.end(), name) != quantized.end()) {
    return "quantized tensors have a scale, for which a SPEC has no words";
  }
  constexpr std::array packed = {"bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "float4_e2m1fn_x2", "float8_e8m0fnu"};
  const bool is_small_int = (name.starts_with("int") || name.starts_with("uint")) && name.size() < 6 &&
                            name.find_first_of("1234567") == name.size() - 1;
  if (is_small_int || std::find(packed.begin(), packed.end(), name) != packed.end()) {
    return "LibTorch can store that dtype but not convert numbers to it";
  }
  return std::nullopt;
}

std::optional<std::string> why_no_value(const SpecDtype& dtype, const c10::Scalar& value) {
  const std::string name(dtype.name);
  if (!c10::isIntegralType(dtype.dtype, /*includeBool=*/true)) {
    // All of them have NaN and infinity, or convert infinity to NaN.
    const double number = value.toDouble();
    return !std::isfinite(number) || std::abs(number) <= dtype.largest_real
               ? std::nullopt
               : std::make_optional(name + " holds numbers up to " + format_number(dtype.largest_real));
  }
  const bool is_whole = value.isIntegral(/*includeBool=*/true);
  const double number = value.toDouble();
  if (!is_whole && (!std::isfinite(number) || number != std::floor(number))) {
    return name + " holds whole numbers";
  }
  const bool is_inside = is_whole ? value.toLong() >= dtype.least && value.toLong() <= dtype.largest
                                  : number >= static_cast<double>(dtype.least) && number < std::ldexp(1.0, 63) &&
                                        number <= static_cast<double>(dtype.largest);
  return is_inside
             ? std::nullopt
             : std::make_optional(name + " holds " + std::to_string(dtype.least) + " to " + std::to_string(dtype.largest));
}

}  // namespace sconce::cli
