// is_same_number: compares a number that was read from a tensor with the recorded one.
#pragma once

#include <ATen/core/ivalue.h>

#include <bit>
#include <cstdint>

namespace sconce {

// NaN is the same as NaN, and 0 is not -0: what was computed from a number is in the recording.
inline bool is_same_number(const c10::IValue& a, const c10::IValue& b) {
  const auto bits = [](const c10::IValue& value) { return std::bit_cast<uint64_t>(value.toDouble()); };
  return a.isDouble() && b.isDouble() ? bits(a) == bits(b) : a.tagKind() == b.tagKind() && a == b;
}

}  // namespace sconce
