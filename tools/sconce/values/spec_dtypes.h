// The dtypes that a SPEC can name, and their ranges of values.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sconce::cli {

struct SpecDtype {
  std::string_view name;
  c10::ScalarType dtype;
  // LibTorch draws no random numbers, or makes no ranges, in some dtypes: values are made in this one and converted.
  c10::ScalarType made_in;
  // The range of integers and bool; SPECs have no numbers above 64 signed bits.
  int64_t least = 0;
  int64_t largest = 0;
  double largest_real = 0;  // of floating and complex dtypes, on both sides
};

std::span<const SpecDtype> spec_dtypes();
// Returns the dtype, or null if SPECs cannot make tensors of it.
const SpecDtype* find_spec_dtype(std::string_view name);
// Returns why SPECs do not support a dtype of torch; nothing for a name that is not a dtype of torch.
std::optional<std::string> why_no_spec_dtype(std::string_view name);

// Returns why the dtype cannot hold the value, such as "int8 holds -128 to 127"; nothing if it can. A mere conversion would
// wrap around, truncate or fail, depending on the dtype.
std::optional<std::string> why_no_value(const SpecDtype& dtype, const c10::Scalar& value);

}  // namespace sconce::cli
